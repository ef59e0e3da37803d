"""The store's word: nothing is made, nothing piles up, counts are as fresh as they are cheap."""

import socket
import threading
import time
from pathlib import Path

import pytest

from failsoft.call_records import CallOutcome, CallRecord
from failsoft.config.settings import StoreConfig
from failsoft.dashboard.sources.ledger import Ledger, LedgerReading
from failsoft.dashboard.standing import Unknown, UnknownWindow, Window
from failsoft.store import Store
from failsoft.store.database import Database
from failsoft.store.traffic import LadderTraffic, TrafficReader
from tests.dashboard.home import NOW_MS, call

LADDERS = {"chat": ("primary", "small", "cache")}


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    """Return the settings of a store that is not there yet."""
    return StoreConfig(url=f"sqlite:///{tmp_path}/failsoft.db")


def record(config: StoreConfig, *calls: CallRecord) -> None:
    """Put *calls* into the store."""
    with Store(config) as store:
        for each in calls:
            store.recorder.record_call(each)


def read(ledger: Ledger) -> LedgerReading:
    """Return what it says; it must know."""
    reading = ledger.read(LADDERS, now_ms=NOW_MS)
    assert isinstance(reading, LedgerReading)
    return reading


def test_a_store_that_is_not_there_is_not_made(config: StoreConfig, tmp_path: Path) -> None:
    """And is found once it is."""
    ledger = Ledger(config, limit_s=1)
    before = ledger.read(LADDERS, now_ms=NOW_MS)
    assert list(tmp_path.iterdir()) == []

    record(config, call(1, age_s=1))
    after = read(ledger)

    assert isinstance(before, Unknown)
    assert len(after.recent["chat"]) == 1
    ledger.close()


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE alembic_version SET version_num = '0001'", "run `failsoft db upgrade`"),
        ("DROP TABLE alembic_version", "is empty"),
    ],
)
def test_a_store_of_another_revision_is_left_alone(
    config: StoreConfig, statement: str, says: str
) -> None:
    """Looking upgrades nothing."""
    record(config)
    database = Database(config, environ={})
    with database.write() as connection:
        connection.exec_driver_sql(statement)
    database.dispose()

    reading = Ledger(config, limit_s=1).read(LADDERS, now_ms=NOW_MS)

    assert isinstance(reading, Unknown)
    assert says in reading.reason


def test_new_calls_are_counted_at_once_while_counting_is_cheap(config: StoreConfig) -> None:
    """A count is kept for thirty times what it took: some milliseconds here."""
    record(config, call(1, age_s=1))
    ledger = Ledger(config, limit_s=1)
    first = read(ledger).traffic["chat"].windows[0]

    record(config, call(2, age_s=1))
    until_s = time.monotonic() + 5
    while (second := read(ledger).traffic["chat"].windows[0]) == first:
        assert time.monotonic() < until_s
        time.sleep(0.01)

    assert isinstance(first, Window)
    assert isinstance(second, Window)
    assert (first.num_calls, second.num_calls) == (1, 2)
    ledger.close()


def test_a_long_window_that_takes_too_long_is_unknown_alone(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five minutes can still be counted when a day cannot."""
    record(config, call(1, age_s=1))
    count = TrafficReader.counts

    def slow(
        self: TrafficReader, ladder: str, endpoints: tuple[str, ...], *, since_ms: int
    ) -> object:
        if since_ms < NOW_MS - 4_000_000:
            raise self._database.error("a query took longer than 1 s")
        return count(self, ladder, endpoints, since_ms=since_ms)

    monkeypatch.setattr(TrafficReader, "counts", slow)

    windows = read(Ledger(config, limit_s=1)).traffic["chat"].windows

    assert [type(window) for window in windows] == [Window, Window, UnknownWindow]
    assert isinstance(windows[2], UnknownWindow)
    assert "took longer" in windows[2].reason


def test_a_count_that_takes_too_long_is_not_tried_again_at_once(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a page that is open has a big store looked through all the time, for nothing."""
    record(config, call(1, age_s=1))
    tried: list[int] = []

    def late(self: TrafficReader, *_: object, since_ms: int) -> object:
        if since_ms > NOW_MS - 4_000_000:
            return LadderTraffic(replies={}, outcomes=dict.fromkeys(CallOutcome, 0))
        tried.append(since_ms)
        time.sleep(0.05)  # what it takes is what is kept of it
        raise self._database.error("a query took longer than 1 s")

    monkeypatch.setattr(TrafficReader, "counts", late)
    ledger = Ledger(config, limit_s=1)

    read(ledger)
    read(ledger)

    assert len(tried) == 1


def test_all_long_counts_share_one_limit(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several ladders of a big store must not make the whole look late."""
    record(config, call(1, age_s=1))
    limits: list[float] = []

    def slow(self: TrafficReader, *_: object, since_ms: int) -> object:
        limits.append(self._limit_s)
        time.sleep(0.1)
        return LadderTraffic(replies={}, outcomes=dict.fromkeys(CallOutcome, 0))

    monkeypatch.setattr(TrafficReader, "counts", slow)
    ladders = dict.fromkeys(("a", "b"), ("primary",))

    Ledger(config, limit_s=0.35).read(ladders, now_ms=NOW_MS)

    assert len(limits) == 6
    assert limits == sorted(limits, reverse=True)
    assert limits[-1] == 0.05


def test_a_last_reply_that_cannot_be_found_in_time_hides_nothing_else(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ladder without any is looked through whole; that is not the same as none."""
    record(config, call(1, age_s=1))

    def late(self: TrafficReader, *_: object, **__: object) -> object:
        raise self._database.error("a query took longer than 1 s")

    monkeypatch.setattr(TrafficReader, "last_reply", late)

    reading = read(Ledger(config, limit_s=1))

    assert isinstance(reading.traffic["chat"].last_reply, Unknown)
    assert len(reading.recent["chat"]) == 1


def test_looks_at_a_database_that_hangs_do_not_pile_up() -> None:
    """A server that takes connections and says nothing, for as long as the driver waits."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"postgresql://nobody@127.0.0.1:{server.getsockname()[1]}/nothing"
        ledger = Ledger(StoreConfig(url=url), limit_s=0.05)
        hanging = threading.Thread(
            target=ledger.read, args=(LADDERS,), kwargs={"now_ms": NOW_MS}, daemon=True
        )
        hanging.start()
        connection, _ = server.accept()

        begun_s = time.monotonic()
        reading = ledger.read(LADDERS, now_ms=NOW_MS)
        seconds = time.monotonic() - begun_s

        connection.close()
        hanging.join(10)
    assert seconds < 2  # the driver itself gives up after 5 s
    assert reading == Unknown(reason="it has not answered an earlier look yet")
