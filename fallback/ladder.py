"""The ladder: ordered rungs asked one after another until one answers.

Knows nothing of HTTP. One deadline lies over all rungs; a failure's action says
whether the next rung may be asked at all.
"""

from failsoft.call_records import AttemptOutcome as Outcome
from failsoft.config.settings import LadderConfig
from failsoft.errors import CallRefusedError, LadderExhaustedError, RungFailedError
from failsoft.fallback.answer import Answer
from failsoft.fallback.cached_rung import CachedRung
from failsoft.fallback.call import Call
from failsoft.fallback.context_check import CONTEXT_CODE
from failsoft.fallback.failure import Action, Failure, cause_of
from failsoft.fallback.retry_budget import RetryBudget
from failsoft.fallback.rung import EndpointRung

Rung = EndpointRung | CachedRung

_NOT_ASKED = frozenset(
    {
        Outcome.BREAKER_OPEN,
        Outcome.SKIPPED_BUDGET,
        Outcome.SKIPPED_DEADLINE,
        Outcome.SKIPPED_CONTEXT,
        Outcome.SKIPPED_CAPABILITY,
        Outcome.CACHE_MISS,
        Outcome.CACHE_EXPIRED,
        Outcome.CACHE_NOT_ALLOWED,
        Outcome.STORE_FAILED,
    }
)


class Ladder:
    """One ladder of the settings, with its rungs and its retry budget.

    Args:
        config: The ladder's settings.
        rungs: Its rungs in order.
        budget: What its retries draw on.
    """

    def __init__(
        self, config: LadderConfig, *, rungs: tuple[Rung, ...], budget: RetryBudget
    ) -> None:
        self.config = config
        self.rungs = rungs
        self.budget = budget
        self.cached = next((rung for rung in rungs if isinstance(rung, CachedRung)), None)
        self.models = tuple(rung for rung in rungs if isinstance(rung, EndpointRung))

    async def ask(self, call: Call) -> Answer:
        """Return the first answer: open for a stream, whole for any other call.

        Raises:
            CallRefusedError: An endpoint says it is the caller's fault; nobody else was asked.
            LadderExhaustedError: No rung could answer.
        """
        self.budget.on_call()
        rungs = self._rungs_for(call)
        for rung in rungs:
            try:
                return await rung.ask(call)
            except RungFailedError as exc:
                self._take_in(call, rung, exc)
        for model in _not_asked(call, rungs):
            try:
                return await model.ask_unheeded(call)
            except RungFailedError as exc:
                self._take_in(call, model, exc)
        raise self._exhausted(call)

    def _take_in(self, call: Call, rung: Rung, exc: RungFailedError) -> None:
        """Note why *rung* failed; raises CallRefusedError when nobody else may be asked."""
        cause = cause_of(exc)
        call.causes.append((exc.rung, cause))
        if cause.action is Action.GIVE_UP and not self._may_fit_elsewhere(call, rung):
            raise _refused(exc.rung, cause) from exc

    def _rungs_for(self, call: Call) -> tuple[Rung, ...]:
        rungs: tuple[Rung, ...] = self.rungs
        if not call.request.fallback:
            first = self.models[:1]
            rungs = (self.cached, *first) if self.cached and self.cached.is_first else first
        if call.request.cache == "refresh" and self.cached and self.cached.is_first:
            rungs = tuple(rung for rung in rungs if rung is not self.cached)
        return rungs

    def _may_fit_elsewhere(self, call: Call, rung: Rung) -> bool:
        """Return whether "too long" was this rung's fault: another one has, or had, more room."""
        failure = call.causes[-1][1]
        if failure.code != CONTEXT_CODE or not isinstance(rung, EndpointRung):
            return False
        limit = rung.endpoint.context_tokens
        below = [m.endpoint.context_tokens for m in self.models if m.place.index > rung.place.index]
        has_more_room = limit is not None and any(t is not None and t > limit for t in below)
        was_below_another = any(index < rung.place.index for index in call.asked)
        return was_below_another or has_more_room

    def _exhausted(self, call: Call) -> LadderExhaustedError:
        failures = [failure for _, failure in call.causes]
        waits = [f.retry_after_s for f in failures if f.retry_after_s is not None]
        waits += [
            wait_s
            for model in self.models
            if (wait_s := model.endpoint.breaker.retry_in_s) is not None
        ]
        return LadderExhaustedError(
            ladder=self.config.name,
            attempts=tuple(call.attempts),
            causes=tuple(f"{rung}: {failure}" for rung, failure in call.causes),
            status=_status(call, failures),
            retry_after_s=min(waits, default=None),
        )


def _not_asked(call: Call, rungs: tuple[Rung, ...]) -> list[EndpointRung]:
    """Return the rungs that only a guess of ours kept from being asked, now that all else failed.

    That is where a breaker is open; else, if nobody was asked at all, the roomiest of those
    the call seemed too long for: the estimate of its tokens may be high, and if it is not,
    the endpoint's own refusal tells the caller more than an outage that is none.
    """
    models = {rung.place.index: rung for rung in rungs if isinstance(rung, EndpointRung)}
    passed = [
        (models[a.rung], a.outcome)
        for a in call.attempts
        if a.rung in models and a.rung not in call.asked
    ]
    left_alone = [model for model, outcome in passed if outcome is Outcome.BREAKER_OPEN]
    if left_alone or call.num_sent:
        return left_alone
    small = [model for model, outcome in passed if outcome is Outcome.SKIPPED_CONTEXT]
    return sorted(small, key=lambda model: -(model.endpoint.context_tokens or 0))[:1]


def _status(call: Call, failures: list[Failure]) -> int:
    if call.deadline.remaining_s <= 0 or any(f.outcome is Outcome.DEADLINE for f in failures):
        return 504
    asked = [f for f in failures if f.outcome not in _NOT_ASKED]
    limited = (Outcome.THROTTLED, Outcome.QUOTA)
    is_limit = all(f.outcome in limited and f.status != 503 for f in asked)
    return 429 if asked and is_limit else 503


def _refused(rung: str, failure: Failure) -> CallRefusedError:
    return CallRefusedError(
        rung=rung,
        status=failure.status or 400,
        code=failure.code,
        param=failure.param,
        body=dict(failure.error_body) if failure.error_body else None,
    )
