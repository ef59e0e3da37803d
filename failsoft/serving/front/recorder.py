"""Counts what a front's calls come to, on its way to the store.

Wraps the store's recorder, so that the ladder itself counts nothing. A ledger row
names its call and not its ladder, so the front says at each call's start whose it is;
of the last `MAX_CALLS` calls that is remembered, for a shared attempt may end after
the call that began it. Stamps are UTC epoch milliseconds.
"""

from collections.abc import Callable

from failsoft.call_records import (
    AttemptOutcome,
    AttemptRecord,
    CallRecord,
    CallText,
    EventRecord,
    Recorder,
)
from failsoft.front_status import LastError

MAX_CALLS = 10_000
_UNKNOWN = "unknown"

_NO_ERRORS = frozenset(
    {
        AttemptOutcome.OK,
        AttemptOutcome.CANCELLED,
        AttemptOutcome.BAD_REQUEST,
        AttemptOutcome.BREAKER_OPEN,
        AttemptOutcome.SKIPPED_BUDGET,
        AttemptOutcome.SKIPPED_DEADLINE,
        AttemptOutcome.SKIPPED_CONTEXT,
        AttemptOutcome.SKIPPED_CAPABILITY,
        AttemptOutcome.CACHE_MISS,
        AttemptOutcome.CACHE_EXPIRED,
        AttemptOutcome.CACHE_NOT_ALLOWED,
    }
)
"""They say nothing against the rung itself."""


class CountingRecorder:
    """A recorder that counts and passes on.

    Args:
        inner: Keeps the records.
        on_call: Told each call's row.
        on_attempt: Told each ledger row and its ladder.
    """

    def __init__(
        self,
        inner: Recorder,
        *,
        on_call: Callable[[CallRecord], None],
        on_attempt: Callable[[str, AttemptRecord], None],
    ) -> None:
        self._inner = inner
        self._on_call = on_call
        self._on_attempt = on_attempt
        self._ladders: dict[str, str] = {}
        self._last_errors: dict[tuple[str, str], LastError] = {}

    def note_call(self, call_id: str, ladder: str) -> None:
        """Remember that *call_id* climbs *ladder*."""
        if len(self._ladders) >= MAX_CALLS:
            del self._ladders[next(iter(self._ladders))]
        self._ladders[call_id] = ladder

    def last_error(self, ladder: str, endpoint: str) -> LastError | None:
        """Return the last error of a rung; None when it never had one."""
        return self._last_errors.get((ladder, endpoint))

    def record_call(self, record: CallRecord, /) -> None:
        """Count a call's row and pass it on."""
        self._on_call(record)
        self._inner.record_call(record)

    def record_attempt(self, record: AttemptRecord, /) -> None:
        """Count a ledger row and pass it on."""
        ladder = self._ladders.get(record.call_id, _UNKNOWN)
        if record.outcome not in _NO_ERRORS:
            self._last_errors[ladder, record.endpoint] = LastError(
                at_ms=record.started_at_ms + int(record.total_s * 1000),
                outcome=record.outcome.value,
                message=record.error_message or record.outcome.value,
            )
        self._on_attempt(ladder, record)
        self._inner.record_attempt(record)

    def record_event(self, record: EventRecord, /) -> None:
        """Pass an event on."""
        self._inner.record_event(record)

    def record_text(self, record: CallText, /) -> None:
        """Pass a call's words on."""
        self._inner.record_text(record)
