"""A locked, full or vanished database costs records, counted, and never a call."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from failsoft.call_records import AttemptRecord, CallRecord
from failsoft.config.settings import StoreConfig
from failsoft.errors import StoreError
from failsoft.reply_records import CachedReply
from failsoft.store import Store
from failsoft.store.idempotency import WRITE_TIMEOUT_S
from tests.store.waiting import wait_until

MakeCall = Callable[..., CallRecord]
MakeAttempt = Callable[..., AttemptRecord]
MakeReply = Callable[..., CachedReply]

ROOT = Path(__file__).parents[2]
LOCKER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
connection.close()
"""


@contextmanager
def locked(folder: Path) -> Iterator[Callable[[], None]]:
    """Hold the write lock of ``folder/failsoft.db`` in another process; yield its release."""
    locker = subprocess.Popen(
        [sys.executable, "-c", LOCKER, str(folder / "failsoft.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def release() -> None:
        if locker.poll() is None:
            locker.communicate("\n", timeout=10)

    assert locker.stdout is not None
    assert locker.stdout.readline() == "locked\n"
    try:
        yield release
    finally:
        release()


@pytest.fixture
def impatient(sqlite_config: StoreConfig) -> StoreConfig:
    """Return settings whose writer notices a lock soon and whose queue is short."""
    return replace(sqlite_config, busy_timeout_s=0.2, queue_records=1000)


def test_a_locked_database_drops_records_counts_them_and_never_holds_a_call(
    impatient: StoreConfig, tmp_path: Path, make_call: MakeCall
) -> None:
    """5,000 calls into a queue of 1,000; when the lock is gone every call is a row or a drop."""
    calls = [make_call(call_id=str(i)) for i in range(5000)]
    with Store(impatient) as store:
        with locked(tmp_path) as release:
            store.recorder.record_call(make_call(call_id="first"))
            wait_until(lambda: store.stats().is_failing)
            started_s = time.monotonic()
            for call in calls:
                store.recorder.record_call(call)
            took_s = time.monotonic() - started_s
            during = store.stats()
            release()
        assert store.flush(20)
        wait_until(lambda: store.reader.events(kind="store.recovered"))
        after = store.stats()
        rows = store.reader.stats().num_rows["calls"]
        event = store.reader.events(kind="store.recovered")[0]

    num_dropped = during.dropped_total["call"]
    assert took_s < 5  # the lock was held all the time, for far longer than one call may wait
    assert "locked" in str(during.last_error)
    assert 3500 <= num_dropped <= 4000
    assert rows + num_dropped == 5001
    assert (after.is_failing, after.dropped_total) == (False, {"call": num_dropped})
    assert json.loads(event.detail_json)["dropped"] == {"call": num_dropped}


def test_a_lock_that_ends_in_time_costs_nothing(
    sqlite_config: StoreConfig, tmp_path: Path, make_call: MakeCall
) -> None:
    """The queue holds what comes meanwhile, under the default settings."""
    with Store(sqlite_config) as store:
        with locked(tmp_path) as release:
            for i in range(5000):
                store.recorder.record_call(make_call(call_id=str(i)))
            time.sleep(0.5)
            release()
        assert store.flush(20)

        assert store.stats().dropped_total == {}
        assert store.reader.stats().num_rows["calls"] == 5000


def test_closing_on_a_locked_database_ends_and_counts(
    impatient: StoreConfig, tmp_path: Path, make_call: MakeCall
) -> None:
    """A shutdown must not hang; what the database does not take is dropped."""
    store = Store(impatient)
    with locked(tmp_path):
        for i in range(700):
            store.recorder.record_call(make_call(call_id=str(i)))

        started_s = time.monotonic()
        store.close()
        took_s = time.monotonic() - started_s

    assert took_s < 5
    assert store.stats().dropped_total == {"call": 700}
    assert store.stats().num_queued == 0


def test_reads_and_cached_replies_go_on_under_a_lock(
    impatient: StoreConfig, tmp_path: Path, make_reply: MakeReply
) -> None:
    """The last rung answers from the database and from what is still queued."""
    with Store(impatient) as store:
        assert store.replies is not None
        store.replies.put(make_reply("written"))
        assert store.flush(10)
        with locked(tmp_path):
            store.replies.put(make_reply("queued"))

            assert store.replies.get("written") is not None
            assert store.replies.get("queued") is not None


def test_an_idempotency_claim_gives_up_on_a_locked_database_in_time(
    sqlite_config: StoreConfig, tmp_path: Path, make_call: MakeCall
) -> None:
    """Also while the writer waits for the same lock, for its much longer time."""
    with Store(sqlite_config) as store, locked(tmp_path):
        store.recorder.record_call(make_call())
        time.sleep(0.3)

        started_s = time.monotonic()
        with pytest.raises(StoreError):
            store.idempotency.begin("k", "t", "f", lease_s=1)
        took_s = time.monotonic() - started_s

    assert WRITE_TIMEOUT_S - 0.1 <= took_s < WRITE_TIMEOUT_S + 2


FILLER = """
import resource, sys, time
from failsoft.call_records import CallRecord, CallOutcome, EventRecord
from failsoft.config.settings import StoreConfig
from failsoft.store import Store
from tests.store.waiting import wait_until

url, limit = sys.argv[1], int(sys.argv[2])
store = Store(StoreConfig(url=url, busy_timeout_s=0.2, queue_records=1000))
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
slowest = 0.0
num = 0
while True:
    for _ in range(100):
        call = CallRecord(
            call_id=str(num), ladder="chat" * 100, tenant="", started_at_ms=num,
            outcome=CallOutcome.OK, served_rung=0, served_endpoint="x" * 400, version_digest=None,
            num_attempts=1, ttft_s=None, e2e_s=1.0, is_stream=False, is_complete=True,
        )
        started = time.perf_counter()
        store.recorder.record_call(call)
        slowest = max(slowest, time.perf_counter() - started)
        num += 1
    time.sleep(0.001)
    stats = store.stats()
    if stats.is_failing and stats.dropped_total.get("call", 0) >= 1000:
        break
print(num, stats.last_error, flush=True)
sys.stdin.readline()
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
is_flushed = store.flush(30)
store.close()
print(is_flushed, store.stats().dropped_total["call"], store.stats().written_total["call"], slowest)
"""


def fill(url: str, *, limit_bytes: int, make_room: Callable[[], None]) -> tuple[int, int, int, str]:
    """Run the filler until the disk is full, make room; return calls, drops, rows, error."""
    filler = subprocess.Popen(
        [sys.executable, "-c", FILLER, url, str(limit_bytes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert filler.stdout is not None
    num_calls, error = filler.stdout.readline().split(" ", 1)
    make_room()
    out, _ = filler.communicate("\n", timeout=60)
    is_flushed, num_dropped, num_written, slowest_s = out.split()
    assert filler.returncode == 0
    assert is_flushed == "True"  # there was room again, and it was used
    assert float(slowest_s) < 0.5
    return int(num_calls), int(num_dropped), int(num_written), error


def is_intact(file: Path) -> bool:
    """Return whether SQLite's own check finds nothing."""
    with Store(StoreConfig(url=f"sqlite:///{file}")) as store, store._database.read() as connection:
        return bool(connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok")


def test_a_file_at_its_size_limit_drops_and_counts_and_recovers(tmp_path: Path) -> None:
    """RLIMIT_FSIZE refuses the write as a full disk or a quota does."""
    file = tmp_path / "failsoft.db"

    num_calls, num_dropped, num_written, error = fill(
        f"sqlite:///{file}", limit_bytes=2_000_000, make_room=lambda: None
    )

    assert "disk" in error
    assert num_dropped + num_written == num_calls
    assert is_intact(file)
    with Store(StoreConfig(url=f"sqlite:///{file}")) as store:
        stats = store.reader.stats()
    assert stats.num_rows["calls"] == num_written
    assert stats.dropped_total == {"call": num_dropped}


def test_a_full_disk_drops_and_counts_and_recovers(tmp_path: Path) -> None:
    """A real file system of 8 MB, filled up; then a ballast file is deleted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not mount: the size-limit test stands in")
    try:
        (disk / "ballast").write_bytes(b"x" * 6_000_000)
        num_calls, num_dropped, num_written, error = fill(
            f"sqlite:///{disk}/failsoft.db", limit_bytes=0, make_room=(disk / "ballast").unlink
        )
        intact = is_intact(disk / "failsoft.db")
    finally:
        subprocess.run(["umount", str(disk)], check=True)

    assert "full" in error
    assert num_dropped + num_written == num_calls
    assert intact


def test_a_cut_connection_to_postgres_loses_and_doubles_nothing(
    postgres_config: StoreConfig,
    postgres_server: Any,
    make_call: MakeCall,
    make_attempt: MakeAttempt,
) -> None:
    """All backends are killed ten times while 2,000 calls are recorded."""
    cut = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'failsoft'"
    )
    with Store(postgres_config) as store:
        for i in range(2000):
            call = make_call(call_id=str(i))
            store.recorder.record_call(call)
            store.recorder.record_attempt(make_attempt(call.call_id))
            if i % 200 == 100:
                time.sleep(0.05)
                postgres_server.run(cut)
        assert store.flush(30)

        rows = store.reader.stats().num_rows
        assert (rows["calls"], rows["attempts"]) == (2000, 2000)
        assert store.stats().dropped_total == {}
