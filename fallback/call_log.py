"""Writes one row for one call, however it ends.

Knows nothing of rungs. Use as a context manager around the whole call.
"""

import asyncio
import json
from collections.abc import Callable
from types import TracebackType
from typing import Self

from failsoft.call_records import CallOutcome, CallRecord, CallText
from failsoft.errors import (
    CallRefusedError,
    IdempotencyConflictError,
    IdempotencyRunningError,
    LadderExhaustedError,
    StreamInterruptedError,
)
from failsoft.fallback.call import Call
from failsoft.fallback.reply import Reply

_REJECTED = (CallRefusedError, IdempotencyConflictError, IdempotencyRunningError)
_LEFT = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt)


class CallLog:
    """One call's row; set *reply* once the caller has it whole.

    Args:
        call: The call.
        keeps_text: Whether the settings keep every call's own words.
        on_end: Called once the row is written.
    """

    def __init__(self, call: Call, *, keeps_text: bool, on_end: Callable[[], None]) -> None:
        self._call = call
        self._keeps_text = keeps_text
        self._on_end = on_end
        self.reply: Reply | None = None

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Record the call's end."""
        self.end(exc)

    def end(self, exc: BaseException | None) -> None:
        """Record the call's end; *exc* is what ended it short of a reply."""
        try:
            self._call.recorder.record_call(self._row(exc))
            if self._keeps_text:
                self._record_text()
        finally:
            self._on_end()

    def _row(self, exc: BaseException | None) -> CallRecord:
        call, reply = self._call, self.reply
        e2e_s = call.surroundings.clock() - call.started_s
        cut = (
            call.attempts[-1] if isinstance(exc, StreamInterruptedError) and call.attempts else None
        )
        tokens = reply.usage if reply is not None else cut
        return CallRecord(
            call_id=call.call_id,
            ladder=call.request.ladder,
            tenant=call.request.tenant,
            started_at_ms=call.started_at_ms,
            outcome=_outcome_of(exc, reply),
            served_rung=reply.rung_index if reply else cut.rung if cut else None,
            served_endpoint=reply.rung if reply else cut.endpoint if cut else None,
            version_digest=reply.version if reply else cut.version_digest if cut else None,
            num_attempts=sum(attempt.was_sent for attempt in call.attempts),
            ttft_s=self._ttft_s(e2e_s),
            e2e_s=e2e_s,
            is_stream=call.request.is_stream,
            is_complete=reply is not None,
            age_s=reply.age_s if reply else None,
            is_stale=reply.is_stale if reply else False,
            cost=call.cost,
            num_prompt_tokens=tokens.num_prompt_tokens if tokens else None,
            num_cached_tokens=tokens.num_cached_tokens if tokens else None,
            num_output_tokens=tokens.num_output_tokens if tokens else None,
            error_kind=None if reply is not None or exc is None else type(exc).__name__,
        )

    def _ttft_s(self, e2e_s: float) -> float | None:
        if not self._call.request.is_stream:
            return e2e_s if self.reply is not None else None
        first_s = self._call.first_content_s
        return None if first_s is None else first_s - self._call.started_s

    def _record_text(self) -> None:
        call = self._call
        call.recorder.record_text(
            CallText(
                call_id=call.call_id,
                tenant=call.request.tenant,
                at_ms=call.started_at_ms,
                request_json=json.dumps(dict(call.request.body)),
                reply_json=json.dumps(self.reply.body) if self.reply is not None else None,
            )
        )


def _outcome_of(exc: BaseException | None, reply: Reply | None) -> CallOutcome:
    if reply is not None:
        return CallOutcome.OK
    if isinstance(exc, StreamInterruptedError):
        return CallOutcome.INCOMPLETE
    if isinstance(exc, _REJECTED):
        return CallOutcome.REJECTED
    if isinstance(exc, _LEFT):
        return CallOutcome.CANCELLED
    is_late = isinstance(exc, LadderExhaustedError) and exc.status == 504
    return CallOutcome.DEADLINE if is_late else CallOutcome.FAILED
