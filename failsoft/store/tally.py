"""What one process's writer wrote, dropped and suffered; any thread may count."""

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from failsoft.call_records import EventRecord
from failsoft.store.rows import RecordKind

RECOVERED = "store.recovered"
"""Event: the database takes records again; its detail says what was dropped meanwhile."""
DROPPED = "store.dropped"
"""Event: records were dropped while the database worked (a full queue, unfit rows)."""

_TELL_EVERY_S = 1.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterStats:
    """A snapshot of one process's writer; counters only grow."""

    num_queued: int
    written_total: Mapping[str, int]
    """By record kind. A second record with the same key counts, and keeps the first row."""
    dropped_total: Mapping[str, int]
    """By record kind: the queue was full, the row was unfit, or the store closed on it."""
    is_failing: bool
    """Whether the last transaction failed; it is tried again."""
    last_error: str | None


class Tally:
    """Counts by record kind; clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._written: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._told: Counter[str] = Counter()
        self._told_s = -_TELL_EVERY_S
        self._failing_since_s: float | None = None
        self._last_error: str | None = None

    def write(self, kinds: Iterable[RecordKind]) -> None:
        """Count written records; the writer's thread only."""
        for kind, num in Counter(kinds).items():
            self._written[kind] += num

    def drop(self, kind: RecordKind, why: str | None = None) -> None:
        """Count a dropped record."""
        with self._lock:
            self._dropped[kind] += 1
            self._last_error = why or self._last_error

    def fail(self, error: str) -> None:
        """Note a failed transaction; the first of an outage is logged."""
        with self._lock:
            self._last_error = error
            if self._failing_since_s is None:
                self._failing_since_s = self._clock()
                _log.warning("%s; records wait, and are dropped and counted when too many", error)

    @property
    def is_failing(self) -> bool:
        """Whether the last transaction failed."""
        return self._failing_since_s is not None

    def event(self, *, at_ms: int, is_last: bool) -> EventRecord | None:
        """Return what a database that works should now be told; None when there is nothing.

        Args:
            at_ms: UTC epoch milliseconds.
            is_last: Whether the writer ends, and nothing can be told later.
        """
        now_s = self._clock()
        with self._lock:
            since_s, self._failing_since_s = self._failing_since_s, None
            untold = self._dropped - self._told
            is_early = now_s - self._told_s < _TELL_EVERY_S and not is_last
            if since_s is None and (not untold or is_early):
                return None
            self._told_s = now_s
            self._told = self._dropped.copy()
            detail: dict[str, object] = {"dropped": dict(untold), "error": self._last_error}
        if since_s is not None:
            detail["failing_s"] = round(now_s - since_s, 3)
            _log.warning("the store takes records again; dropped meanwhile: %s", dict(untold))
        return EventRecord(
            kind=DROPPED if since_s is None else RECOVERED,
            at_ms=at_ms,
            subject="store",
            detail_json=json.dumps(detail),
        )

    def stats(self, *, num_queued: int) -> WriterStats:
        """Return a snapshot."""
        with self._lock:
            return WriterStats(
                num_queued=num_queued,
                written_total=dict(self._written),
                dropped_total=dict(self._dropped),
                is_failing=self.is_failing,
                last_error=self._last_error,
            )
