"""A model rung: one endpoint asked under tenacity's policy, its attempts entered and judged.

Knows nothing of the rungs beside it but how much time they need. Units: seconds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from failsoft.call_records import AttemptOutcome as Outcome
from failsoft.config.http import DEADLINE_HEADER, PROGRESS_HEADER
from failsoft.config.settings import LadderConfig
from failsoft.errors import RungFailedError
from failsoft.fallback.answer import LiveAnswer
from failsoft.fallback.assembly import Assembly
from failsoft.fallback.attempt import Attempt
from failsoft.fallback.breaker import Permit
from failsoft.fallback.cache_salt import SALT_FIELD, cache_salt
from failsoft.fallback.call import Call
from failsoft.fallback.compact_json import compact_json
from failsoft.fallback.deadline import CACHE_RESERVE_S, clocks_for
from failsoft.fallback.endpoint import Endpoint, Target, reported_digest
from failsoft.fallback.failure import Action, Failure, cause_of
from failsoft.fallback.retry import is_retried, make_retrying
from failsoft.fallback.retry_budget import RetryBudget
from failsoft.fallback.surroundings import Surroundings
from failsoft.fallback.transport import Transport
from failsoft.fallback.trial import Trial

MIN_ATTEMPT_S = 0.005
"""With less left nothing can come back: the rung is passed over."""
PATHS = {"chat": "/chat/completions", "completion": "/completions"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a rung stands in its ladder."""

    index: int
    is_last_model: bool
    cache_below: bool
    models_below: tuple[Endpoint, ...]

    @property
    def reserve_s(self) -> float:
        """Seconds the model rungs below need; infinity while one's speed is not known."""
        return sum(
            float("inf") if e.service.median_s is None else e.service.median_s
            for e in self.models_below
        )


class EndpointRung:
    """One endpoint as a rung of one ladder.

    Args:
        endpoint: Its standing, shared by every ladder that uses it.
        place: Where it stands.
        config: The ladder's.
        budget: The ladder's retry budget.
        transport: Returns the transport of the running event loop.
        on_answer: Told the endpoint and target after an answer (to learn its context).
        surroundings: Clocks, chance and sleep.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        place: Place,
        config: LadderConfig,
        budget: RetryBudget,
        transport: Callable[[], Transport],
        on_answer: Callable[[Endpoint, Target], None],
        surroundings: Surroundings,
    ) -> None:
        self.endpoint = endpoint
        self.place = place
        self._config = config
        self._budget = budget
        self._transport = transport
        self._on_answer = on_answer
        self._surroundings = surroundings

    async def ask(self, call: Call) -> LiveAnswer:
        """Return this rung's answer: open for a stream, whole for any other call.

        Raises:
            RungFailedError: It could not answer; its attempts are in the call's ledger.
        """
        if (outcome := self.endpoint.lacks(call.request.body)) is not None:
            self._skip(call, outcome, "the request does not fit this endpoint")
        try:
            return await self._attempt(call)
        except RungFailedError as exc:
            if not is_retried(exc):
                raise
            return await self._retry(call, after=exc)

    async def _retry(self, call: Call, *, after: RungFailedError) -> LiveAnswer:
        """Go on under tenacity's policy, which a first attempt that succeeds need not pay for."""
        first: RungFailedError | None = after

        async def attempt() -> LiveAnswer:
            nonlocal first
            if first is not None:
                failed, first = first, None
                raise failed
            return await self._attempt(call)

        retrying = make_retrying(
            self._config.retry,
            may_wait=lambda wait_s: self._may_wait(call, wait_s),
            may_spend=lambda: self._may_retry(call),
            surroundings=self._surroundings,
        )
        answer: LiveAnswer = await retrying(attempt)
        return answer

    async def ask_unheeded(self, call: Call) -> LiveAnswer:
        """Make one attempt whatever breaker and context check say: nobody else could answer.

        Free while the endpoint answers a fair share of what it is asked; else it draws on the
        retry budget, so that an outage meets no more load than with a breaker that is obeyed.

        Raises:
            RungFailedError: It could not answer either, or there is no budget or time left.
        """
        if call.deadline.remaining_s < MIN_ATTEMPT_S:
            self._skip(call, Outcome.SKIPPED_DEADLINE, "too little time is left")
        if not self._may_step_down(is_last=True):
            self._skip(call, Outcome.SKIPPED_BUDGET, "it hardly answers, and no budget is left")
        return await self._attempt_with(call, self.endpoint.breaker.unheeded())

    def _may_wait(self, call: Call, wait_s: float) -> bool:
        """Return whether waiting here beats going on: time is left, and nobody better waits."""
        if wait_s > self._config.retry.cap_s and not self.place.is_last_model:
            return False
        left_s = call.deadline.remaining_s - (CACHE_RESERVE_S if self.place.cache_below else 0.0)
        return left_s > wait_s + (self.endpoint.service.median_s or MIN_ATTEMPT_S)

    def _may_retry(self, call: Call) -> bool:
        if self._budget.try_spend(is_last_rung=self.place.is_last_model):
            return True
        self._enter_skip(call, Outcome.SKIPPED_BUDGET, "the retry budget is spent")
        return False

    async def _attempt(self, call: Call) -> LiveAnswer:
        """Make one attempt, if breaker and budget allow it."""
        return await self._attempt_with(call, self._permit(call))

    async def _attempt_with(self, call: Call, permit: Permit) -> LiveAnswer:
        target = self.endpoint.locate()
        if isinstance(target, str):
            permit.ignore()
            self._skip(call, Outcome.CONNECT_FAILED, target)
        trial = self._begin(call, permit, target)
        try:
            return await self._run(call, trial, target)
        except BaseException as exc:
            await trial.settle(cause_of(exc) if isinstance(exc, RungFailedError) else exc)
            raise

    async def _run(self, call: Call, trial: Trial, target: Target) -> LiveAnswer:
        attempt = trial.attempt
        await attempt.send(
            target.url + PATHS[call.request.kind],
            headers=_headers(call, target),
            content=_payload(call, target),
        )
        held = await attempt.open(on_first_token=trial.on_first_token)
        trial.on_open()
        version = target.version.served_as(reported_digest(attempt.headers))
        self.endpoint.on_served(version)
        answer = LiveAnswer(
            call,
            rung=self.endpoint.name,
            rung_index=self.place.index,
            version=version,
            attempt=attempt,
            held=held,
            settle=trial.settle,
        )
        if not call.request.is_stream or attempt.is_ended:
            await answer.finish()
        self._on_answer(self.endpoint, target)
        return answer

    def _begin(self, call: Call, permit: Permit, target: Target) -> Trial:
        clocks = clocks_for(
            self._config.timeouts,
            deadline=call.deadline,
            reserve_s=self.place.reserve_s,
            cache_below=self.place.cache_below,
        )
        attempt = Attempt(
            rung=self.endpoint.name,
            assembly=Assembly(kind=call.request.kind, num_choices=call.request.num_choices),
            clocks=clocks,
            transport=self._transport(),
            on_token=self.endpoint.breaker.on_token,
            surroundings=self._surroundings,
        )
        call.asked.add(self.place.index)
        call.num_sent += 1
        return Trial(
            call,
            attempt,
            endpoint=self.endpoint,
            rung_index=self.place.index,
            target=target,
            permit=permit,
            clocks=clocks,
            timeouts=self._config.timeouts,
        )

    def _permit(self, call: Call) -> Permit:
        """Return leave to attempt: time, breaker and budget agree."""
        if call.deadline.remaining_s < MIN_ATTEMPT_S:
            self._skip(call, Outcome.SKIPPED_DEADLINE, "too little time is left")
        permit = self.endpoint.breaker.acquire()
        if permit is None:
            self._skip(call, Outcome.BREAKER_OPEN, "left alone after failures")
        is_step_down = call.num_sent > 0 and self.place.index not in call.asked
        is_last = self.place.is_last_model
        if is_step_down and not permit.is_probe and not self._may_step_down(is_last=is_last):
            permit.ignore()
            self._skip(call, Outcome.SKIPPED_BUDGET, "it hardly answers, and no budget is left")
        return permit

    def _may_step_down(self, *, is_last: bool) -> bool:
        return self.endpoint.earns_step_down() or self._budget.try_spend(is_last_rung=is_last)

    def _skip(self, call: Call, outcome: Outcome, detail: str) -> NoReturn:
        failure = self._enter_skip(call, outcome, detail)
        raise RungFailedError(rung=self.endpoint.name, cause=failure)

    def _enter_skip(self, call: Call, outcome: Outcome, detail: str) -> Failure:
        failure = Failure(outcome=outcome, action=Action.STEP_DOWN, detail=detail)
        call.pass_over(rung=self.place.index, endpoint=self.endpoint.name, failure=failure)
        return failure


def _headers(call: Call, target: Target) -> list[tuple[str, str]]:
    headers = [
        ("content-type", "application/json"),
        ("accept", "text/event-stream, application/json"),
        ("accept-encoding", "identity"),
        ("x-request-id", f"{call.call_id}-{call.next_attempt}"),
        (DEADLINE_HEADER, str(max(1, int(call.deadline.remaining_s * 1000)))),
        (PROGRESS_HEADER, "on"),  # only our engine knows it; to any other it is a header more
    ]
    if target.authorization is not None:
        headers.append(("authorization", target.authorization))
    return headers


def _payload(call: Call, target: Target) -> bytes:
    """Return the body for *target*: the caller's, and behind it what the ladder sets.

    The caller's text is written once for a call, however many rungs are asked.
    """
    request = call.request
    own: dict[str, Any] = {"model": target.model}
    if target.salt_secret is not None:
        salt = request.body.get(SALT_FIELD)  # never sent as it is: see `cache_salt`
        own[SALT_FIELD] = cache_salt(target.salt_secret, tenant=request.tenant, own=salt)
    if not request.body.get("best_of"):  # the best of several is only known at their end
        own |= {"stream": True, "stream_options": {"include_usage": True}}
    tail = compact_json(own)
    return f"{request.body_json[:-1]},{tail[1:]}".encode()
