"""Upkeep by its own thread: checkpoints, retention, and silence when idle."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from failsoft.call_records import CallRecord, EventRecord
from failsoft.config.settings import StoreConfig
from failsoft.reply_records import CachedReply
from failsoft.store import Store, upkeep
from failsoft.store.drift import DriftWatch

MakeCall = Callable[..., CallRecord]

EVENT = EventRecord(kind="k", at_ms=4_000_000_000_000, subject="s")


def test_retention_runs_once_a_minute_while_the_store_is_in_use(
    store_config: StoreConfig, make_call: MakeCall
) -> None:
    """And goes on until nothing old is left: more rows than one batch."""
    now_s = 1000.0
    with Store(store_config) as store:
        keeper = upkeep.Upkeep(
            store._database,
            store.retention,
            None,
            drift=DriftWatch(store._database),
            clock=lambda: now_s,
        )
        for i in range(1200):
            store.recorder.record_call(make_call(call_id=str(i), started_at_ms=1))
        assert store.flush(10)

        keeper.tick(is_quiet=False)
        early = store.reader.stats().num_rows["calls"]
        now_s += upkeep.RETENTION_S
        keeper.tick(is_quiet=False)
        late = store.reader.stats().num_rows["calls"]

    assert (early, late) == (1200, 0)


def test_uses_are_written_so_that_another_process_evicts_in_the_right_order(
    store_config: StoreConfig,
) -> None:
    """A use is noted in memory first: the call does not pay for it."""
    now_s = 2_000_000_000.0
    with Store(store_config, clock=lambda: now_s) as store:
        assert store.replies is not None
        store.replies.put(
            CachedReply(
                key="k",
                tenant="",
                version_digest=None,
                ladder="chat",
                created_at_ms=int(now_s * 1000),
                reply_json="{}",
            )
        )
        assert store.flush(10)
        now_s += 5
        store.replies.get("k")

        store._upkeep.tick(is_quiet=False)

        with store._database.read() as connection:
            used = connection.exec_driver_sql("SELECT used_at_ms FROM replies").scalar()
        assert used == 2_000_000_005_000


def test_a_store_that_falls_quiet_empties_its_log_by_itself(
    sqlite_config: StoreConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few quiet ticks after the last record; nobody calls anything."""
    monkeypatch.setattr(upkeep, "TICK_S", 0.05)
    with Store(sqlite_config) as store:
        store.recorder.record_event(EVENT)
        assert store.flush(10)

        wal = tmp_path / "failsoft.db-wal"
        deadline = time.monotonic() + 10
        while wal.stat().st_size:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_store_that_is_only_read_starts_no_thread(sqlite_config: StoreConfig) -> None:
    """A page or a command line pays for no upkeep; closing leaves no thread behind."""
    before = set(threading.enumerate())
    with Store(sqlite_config) as store:
        store.reader.stats()
        assert set(threading.enumerate()) == before

        store.recorder.record_event(EVENT)
        assert store.flush(10)
        names = {thread.name for thread in set(threading.enumerate()) - before}
        assert names == {"failsoft-writer", "failsoft-upkeep"}

    assert set(threading.enumerate()) == before
