"""How one attempt ended, told once to everyone who must know: ledger, breaker, endpoint.

Knows nothing of HTTP or of the next rung. Units: seconds.
"""

import asyncio
import logging

from failsoft.call_records import AttemptOutcome as Outcome
from failsoft.call_records import AttemptRecord
from failsoft.config.price import cost
from failsoft.config.settings import TimeoutConfig
from failsoft.fallback.attempt import Attempt
from failsoft.fallback.breaker import Permit
from failsoft.fallback.call import Call
from failsoft.fallback.deadline import Clocks, is_silence_evidence
from failsoft.fallback.endpoint import Endpoint, Target, reported_digest
from failsoft.fallback.failure import Action, Failure

_log = logging.getLogger("failsoft.fallback")
_SILENT = frozenset({Outcome.TIMEOUT_FIRST_TOKEN, Outcome.DEADLINE})


class Trial:
    """One attempt as ledger, breaker and endpoint see it.

    Args:
        call: The call; gets the ledger row.
        attempt: The attempt; closed here.
        endpoint: Its endpoint.
        rung_index: The rung's place.
        target: Where it went.
        permit: The breaker's leave for it.
        clocks: What it might take.
        timeouts: The ladder's own clocks, uncut.
    """

    def __init__(
        self,
        call: Call,
        attempt: Attempt,
        *,
        endpoint: Endpoint,
        rung_index: int,
        target: Target,
        permit: Permit,
        clocks: Clocks,
        timeouts: TimeoutConfig,
    ) -> None:
        self.attempt = attempt
        self._call = call
        self._endpoint = endpoint
        self._rung_index = rung_index
        self._target = target
        self._permit = permit
        self._clocks = clocks
        self._timeouts = timeouts
        self._started_at_ms = call.surroundings.wall_ms()
        self._is_settled = False
        self._is_waiting = True
        endpoint.breaker.on_wait_begin()

    def on_first_token(self) -> None:
        """The first token is here, though its text may be held: a probe has its answer."""
        # From here on the gap clock watches, which knows a caller who reads slowly.
        self._end_wait()
        if self._permit.is_probe:
            self._permit.succeed(ttft_s=self.attempt.ttft_s)

    def on_open(self) -> None:
        """The first content is here, or the end of a reply without any."""
        self.on_first_token()
        self._call.on_content()

    async def settle(self, end: Failure | BaseException | None) -> None:
        """Enter the end: None is well, an exception is the caller leaving. The first one counts."""
        if self._is_settled:
            return
        self._is_settled = True
        # All that must not be lost comes before the first await: a second cancel may hit there.
        self._end_wait()
        self._judge(end)
        self._call.record(self._row(end))
        await self.attempt.aclose()

    def _end_wait(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._endpoint.breaker.on_wait_end()

    def _judge(self, end: Failure | BaseException | None) -> None:
        if end is None:
            self._endpoint.on_end(is_answered=True)
            self._permit.succeed(ttft_s=self.attempt.ttft_s)
            if self.attempt.ttft_s is not None:
                self._endpoint.ttft.add(self.attempt.ttft_s)
            self._endpoint.service.add(self._elapsed_s)
        elif not isinstance(end, Failure):
            self._permit.ignore()
        elif self._is_evidence(end):
            self._endpoint.on_end(is_answered=False)
            self._permit.fail(
                is_transport=end.is_transport or end.outcome in _SILENT,
                is_gap=end.outcome is Outcome.TIMEOUT_GAP,
            )
        else:
            if end.outcome not in _SILENT and end.outcome is not Outcome.TIMEOUT_CONNECT:
                self._endpoint.on_end(is_answered=end.action is Action.GIVE_UP)
            self._permit.ignore()

    def _is_evidence(self, failure: Failure) -> bool:
        """Return whether it tells of the endpoint, and not of a tiny deadline of the caller's."""
        if failure.outcome is Outcome.TIMEOUT_CONNECT:
            return self._clocks.connect_s >= self._timeouts.connect_s
        if failure.outcome in _SILENT and failure.status is None:
            return self.attempt.ttft_s is None and is_silence_evidence(
                self._elapsed_s,
                first_token_s=self._timeouts.first_token_s,
                typical_ttft_s=self._endpoint.ttft.median_s,
            )
        return failure.is_evidence

    @property
    def _elapsed_s(self) -> float:
        return self._call.surroundings.clock() - self.attempt.started_s

    def _row(self, end: Failure | BaseException | None) -> AttemptRecord:
        attempt, assembly = self.attempt, self.attempt.assembly
        outcome = _outcome_of(end)
        return AttemptRecord(
            call_id=self._call.call_id,
            attempt=self._call.next_attempt,
            rung=self._rung_index,
            endpoint=self._endpoint.name,
            outcome=outcome,
            started_at_ms=self._started_at_ms,
            was_sent=attempt.was_sent,
            total_s=self._elapsed_s,
            connect_s=attempt.connect_s,
            ttft_s=attempt.ttft_s,
            http_status=attempt.status,
            version_digest=reported_digest(attempt.headers) or self._target.version.digest,
            reported_model=assembly.model,
            reported_fingerprint=assembly.fingerprint,
            num_prompt_tokens=assembly.num_prompt_tokens,
            num_cached_tokens=assembly.num_cached_tokens,
            num_output_tokens=assembly.num_output_tokens,
            cost=self._cost(),
            error_message=_message_of(end),
        )

    def _cost(self) -> float | None:
        version = self._target.version
        if version.price is None and version.key not in self._endpoint.unpriced:
            self._endpoint.unpriced.add(version.key)
            _log.warning("endpoint %s has no price: its cost is unknown", self._endpoint.name)
        assembly = self.attempt.assembly
        return cost(
            version.price,
            num_prompt_tokens=assembly.num_prompt_tokens,
            num_output_tokens=assembly.num_output_tokens,
            num_cached_tokens=assembly.num_cached_tokens,
        )


def _outcome_of(end: Failure | BaseException | None) -> Outcome:
    if end is None:
        return Outcome.OK
    if isinstance(end, Failure):
        return end.outcome
    left = isinstance(end, GeneratorExit | asyncio.CancelledError | KeyboardInterrupt)
    return Outcome.CANCELLED if left else Outcome.ERROR


def _message_of(end: Failure | BaseException | None) -> str | None:
    if end is None:
        return None
    return str(end) if isinstance(end, Failure) else type(end).__name__
