"""The one thread that writes records: queued off the call path, in batches.

A record reaches the database at most `FLUSH_S` plus one short transaction after
it was handed over, so ``kill -9`` loses at most the last 250 ms. What cannot be
written stays queued; what no longer fits is dropped and counted.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from failsoft.call_records import AttemptRecord, CallRecord, CallText, EventRecord
from failsoft.errors import StoreError
from failsoft.reply_records import CachedReply, ServedVersion
from failsoft.store.batch import BatchWriter, Prepared, Unfit, is_about_a_row
from failsoft.store.breath import Breath
from failsoft.store.database import Database
from failsoft.store.rows import INSERTS, RecordKind, Row
from failsoft.store.tally import Tally, WriterStats

BATCH_ROWS = 500
FLUSH_S = 0.1
"""Age at which a record is written: the promise is 200 ms, a late thread gets the rest."""

Queued = tuple[RecordKind, Row | None, Any]
"""A row, or a record whose row is yet to be made; a reply has both in the end."""

_FIRST_RETRY_S = 0.1
_LAST_RETRY_S = 5.0
_log = logging.getLogger(__name__)


class RecordWriter:
    """A `failsoft.call_records.Recorder`; its thread starts with the first record.

    Args:
        database: Where the rows go.
        queue_records: Records that wait at most.
        keeps_text: Whether `record_text` keeps anything.
        clock: UTC epoch seconds.
        on_settled: Called on the writer's thread with every reply that was
            written, or dropped after it had been queued.
        on_batch: Called on the writer's thread after each transaction.
        on_attempt: Called on the call path with each ledger row that was queued.
    """

    def __init__(
        self,
        database: Database,
        *,
        queue_records: int,
        keeps_text: bool,
        clock: Callable[[], float] = time.time,
        on_settled: Callable[[CachedReply], None] = lambda _reply: None,
        on_batch: Callable[[], None] = lambda: None,
        on_attempt: Callable[[AttemptRecord], None] = lambda _attempt: None,
    ) -> None:
        self._batches = BatchWriter(database)
        self._limit = queue_records
        self._keeps_text = keeps_text
        self._clock = clock
        self._on_settled = on_settled
        self._on_batch = on_batch
        self._on_attempt = on_attempt
        self._is_closed = False
        self.start_anew()

    def start_anew(self) -> None:
        """Start empty, as a forked child must: the parent writes what was queued before."""
        self._queue: deque[Queued] = deque()
        self._tally = Tally()
        self._some = threading.Event()
        self._full = threading.Event()
        self._closing = threading.Event()
        self._settled = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_busy = False
        self._num_flushing = 0
        self._batch_at_s = 0.0

    # The call path: a row of a few microseconds, an append and two flag reads.

    def record_call(self, record: CallRecord, /) -> None:
        """Queue one call row; never blocks, never raises."""
        self._put_row("call", record)

    def record_attempt(self, record: AttemptRecord, /) -> None:
        """Queue one ledger row; never blocks, never raises."""
        self._put_row("attempt", record, also=self._on_attempt)

    def record_event(self, record: EventRecord, /) -> None:
        """Queue one event row; never blocks, never raises."""
        self._put("event", record)

    def record_text(self, record: CallText, /) -> None:
        """Queue a call's words if they are to be kept; never blocks, never raises."""
        if self._keeps_text:
            self._put("text", record)

    def record_served(self, record: ServedVersion, /) -> None:
        """Queue which version answers; never blocks, never raises."""
        self._put("served version", record)

    def record_reply(self, record: CachedReply, /) -> bool:
        """Queue one reply; False when it was dropped. Never blocks, never raises."""
        return self._put("reply", record)

    def _put_row(
        self, kind: RecordKind, record: Any, *, also: Callable[[Any], None] | None = None
    ) -> None:
        """Queue *record* as its row, which the garbage collector passes by (ADR 17)."""
        try:
            if self._put(kind, None, row=INSERTS[kind].to_row(record)) and also is not None:
                also(record)
        except (AttributeError, TypeError, ValueError) as exc:
            self._tally.drop(kind, _bug(kind, exc))

    def _put(self, kind: RecordKind, record: Any, *, row: Row | None = None) -> bool:
        queue = self._queue
        if self._is_closed or len(queue) >= self._limit:
            self._tally.drop(kind)
            return False
        queue.append((kind, row, record))
        if self._thread is None:
            self._start()
        if not self._some.is_set():
            self._some.set()
        elif len(queue) >= BATCH_ROWS and not self._full.is_set():
            self._full.set()
        return True

    def _start(self) -> None:
        with self._settled:
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name="failsoft-writer", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no threads left, or the interpreter ends: the next record tries
                return
            self._thread = thread

    def stats(self) -> WriterStats:
        """Return a snapshot."""
        return self._tally.stats(num_queued=len(self._queue))

    def drop(self, kind: RecordKind) -> None:
        """Count a record that its part refused before it was queued."""
        self._tally.drop(kind)

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that is queued is written or dropped; False when that took too long."""
        with self._settled:
            self._num_flushing += 1
            self._full.set()
            try:
                return self._settled.wait_for(
                    lambda: not self._queue and not self._is_busy, timeout=timeout_s
                )
            finally:
                self._num_flushing -= 1

    def close(self, timeout_s: float) -> None:
        """Write what is queued; drop and count what a failing database does not take."""
        self._is_closed = True
        self._closing.set()
        self._full.set()
        self._some.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
        while self._queue:
            self._tally.drop(self._queue.popleft()[0])
        if self._tally.is_failing:
            _log.warning("closed on a failing store; dropped: %s", self.stats().dropped_total)

    # The writer's thread.

    def _run(self) -> None:
        while not self._closing.is_set():
            self._some.wait()
            self._full.wait(max(0.0, self._batch_at_s + FLUSH_S - time.monotonic()))
            self._some.clear()
            self._full.clear()
            self._write_batch()
            # What came meanwhile waits for its own time: a transaction for each few rows
            # costs a caller more than the rows do.
            if self._queue:
                self._some.set()
            if len(self._queue) >= BATCH_ROWS or self._num_flushing:
                self._full.set()
        self._drain()
        if not self._tally.is_failing:
            self._tell(is_last=True)
            self._drain()

    def _drain(self) -> None:
        """Write batch after batch until the queue is empty."""
        while self._queue:
            self._write_batch()

    def _write_batch(self) -> None:
        """Write or drop up to `BATCH_ROWS` of the queue; none when it is empty."""
        self._is_busy = True
        self._batch_at_s = time.monotonic()
        breath = Breath()
        items = [self._queue.popleft() for _ in range(min(len(self._queue), BATCH_ROWS))]
        try:
            if items:
                self._settle(self._prepare(items, breath), breath)
                self._on_batch()
        except Exception:  # noqa: BLE001 - the thread must outlive a bug of ours
            _log.exception("a bug in the record writer lost a batch")
            for kind, _row, _record in items:
                self._tally.drop(kind)
        finally:
            with self._settled:
                self._is_busy = False
                self._settled.notify_all()

    def _prepare(self, items: Sequence[Queued], breath: Breath) -> list[Prepared]:
        prepared: list[Prepared] = []
        for kind, row, record in items:
            breath.take_when_due()
            if row is None:
                try:
                    row = INSERTS[kind].to_row(record)
                except (AttributeError, TypeError, ValueError) as exc:
                    self._lose(kind, record, _bug(kind, exc))
                    continue
            prepared.append((kind, row, record if kind == "reply" else None))
        return prepared

    def _settle(self, batch: list[Prepared], breath: Breath) -> None:
        """Write *batch*, however long the database takes; drop it only when closing."""
        wait_s = _FIRST_RETRY_S
        is_last = False
        while True:
            is_last = self._closing.is_set()
            try:
                unfit = self._write(batch, breath)
                break
            except StoreError as exc:
                self._tally.fail(str(exc))
                if is_last:
                    unfit = [Unfit(item, str(exc)) for item in batch]
                    break
                self._closing.wait(wait_s)
                wait_s = min(2 * wait_s, _LAST_RETRY_S)
        breath.take_when_due()
        for (kind, _row, reply), why in unfit:
            self._lose(kind, reply, why)
        lost = {id(item) for item, _ in unfit}
        written = [item for item in batch if id(item) not in lost] if lost else batch
        self._tally.write(kind for kind, _, _ in written)
        for _, _, reply in written:
            if reply is not None:
                self._on_settled(reply)
        if len(unfit) < len(batch):
            self._tell(is_last=False)

    def _write(self, batch: list[Prepared], breath: Breath) -> list[Unfit]:
        """Write *batch* and return the rows that are unfit.

        Raises:
            StoreError: The database refused; the batch may be tried again.
        """
        try:
            self._batches.insert(batch, breath)
        except (StoreError, OverflowError, UnicodeError) as exc:
            if not is_about_a_row(exc):
                raise
            return self._batches.insert_each(batch, breath)
        return []

    def _lose(self, kind: RecordKind, record: Any, why: str) -> None:
        """Count a queued record that will never be written."""
        self._tally.drop(kind, why)
        if kind == "reply":
            self._on_settled(record)

    def _tell(self, *, is_last: bool) -> None:
        """Queue an event about what was lost; past the limit, for there is only one at a time."""
        event = self._tally.event(at_ms=int(self._clock() * 1000), is_last=is_last)
        if event is not None:
            self._queue.append(("event", None, event))


def _bug(kind: RecordKind, exc: Exception) -> str:
    return f"{type(exc).__name__} in the record of kind {kind!r}"
