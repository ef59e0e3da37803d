"""When the writer's thread begins a transaction, and what it lets happen meanwhile."""

import gc
from collections.abc import Callable, Iterator

import pytest

from failsoft.call_records import AttemptRecord, CallRecord
from failsoft.config.settings import StoreConfig
from failsoft.store import Store, writer
from failsoft.store.database import Database
from failsoft.store.writer import BATCH_ROWS, RecordWriter
from tests.store.waiting import wait_until

MakeCall = Callable[..., CallRecord]
MakeAttempt = Callable[..., AttemptRecord]
NEVER_S = 1e9


class Patient:
    """A writer that finds no record old; some come while it finishes its first batch."""

    def __init__(self, config: StoreConfig, meanwhile: list[CallRecord]) -> None:
        self.num_written: list[int] = []
        """After each transaction."""
        self._meanwhile = meanwhile
        self._database = Database(config, environ={})
        self.writer = RecordWriter(
            self._database,
            queue_records=50_000,
            keeps_text=False,
            on_batch=self._on_batch,
        )

    def close(self) -> None:
        """Write what is queued and let go."""
        self.writer.close(10)
        self._database.dispose()

    def _on_batch(self) -> None:
        if not self.num_written:
            for call in self._meanwhile:
                self.writer.record_call(call)
        self.num_written.append(self.writer.stats().written_total["call"])


@pytest.fixture
def patient(
    sqlite_config: StoreConfig, make_call: MakeCall, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Patient]:
    """Return one that 3 calls reach while it finishes its first batch."""
    monkeypatch.setattr(writer, "FLUSH_S", NEVER_S)
    Store(sqlite_config).close()  # makes the tables
    found = Patient(sqlite_config, meanwhile=[make_call() for _ in range(3)])
    yield found
    found.close()


def test_what_comes_during_a_transaction_waits_for_its_own_time(
    patient: Patient, make_call: MakeCall
) -> None:
    """At 10,000 rows a second, each few that had come meanwhile got a commit of their own."""
    for _ in range(BATCH_ROWS):
        patient.writer.record_call(make_call())
    wait_until(lambda: patient.num_written)
    for _ in range(BATCH_ROWS - 3):
        patient.writer.record_call(make_call())
    wait_until(lambda: len(patient.num_written) == 2)

    assert patient.num_written == [BATCH_ROWS, 2 * BATCH_ROWS]


def test_a_flush_writes_what_came_during_it(patient: Patient, make_call: MakeCall) -> None:
    """It waits for an empty queue, and nobody else would hurry the writer."""
    patient.writer.record_call(make_call())

    assert patient.writer.flush(10)

    assert patient.num_written == [1, 4]


def test_what_is_queued_is_nothing_to_the_garbage_collector(
    patient: Patient, make_call: MakeCall, make_attempt: MakeAttempt
) -> None:
    """Records that outlived two young collections brought on full ones, of 65 to 100 ms each."""
    queue = patient.writer._queue
    for _ in range(20):
        patient.writer.record_call(make_call(version_digest="d" * 64, cost=0.1, ttft_s=0.2))
        patient.writer.record_attempt(make_attempt("c"))

    gc.collect(0)  # lets go of the rows
    gc.collect(1)  # and of what held them

    assert len(queue) == 40
    assert not any(gc.is_tracked(item) for item in queue)


def test_a_record_of_the_wrong_type_is_dropped_and_counted(patient: Patient) -> None:
    """Its row is made on the call path, which it must not break."""
    patient.writer.record_call("no call")  # type: ignore[arg-type]
    patient.writer.record_attempt(None)  # type: ignore[arg-type]

    stats = patient.writer.stats()
    assert stats.dropped_total == {"call": 1, "attempt": 1}
    assert stats.last_error == "AttributeError in the record of kind 'attempt'"
