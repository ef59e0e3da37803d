"""What a client knows of moved pins, and that no call waits for it."""

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest

from failsoft.errors import StoreError
from failsoft.fallback.pins.pin_book import FRESH_S, RENEW_S, PinBook
from failsoft.fallback.store_threads import StoreThreads
from failsoft.pin_records import Pin, PinnedVersion
from tests.fallback.fake_time import FakeTime

V1 = PinnedVersion(name="v1", settings_json="{}", digest="1" * 64)
V2 = PinnedVersion(name="v2", settings_json="{}", digest="2" * 64)


class Pins:
    """A store's pins that a test changes, breaks or holds up."""

    def __init__(self, version: PinnedVersion = V1, *, is_moved: bool = True) -> None:
        self.version = version
        self.is_moved = is_moved
        self.is_broken = False
        self.num_reads = 0
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def pins(self) -> dict[str, Pin]:
        """Return them."""
        self.num_reads += 1
        assert self.may_go_on.wait(10)
        if self.is_broken:
            raise StoreError("it is gone", url="sqlite:///x")
        pin = Pin(slot="s", version=self.version, is_moved=self.is_moved, move_id="1", since_ms=0)
        return {"s": pin}


@pytest.fixture
def threads() -> Iterator[StoreThreads]:
    """A client's threads."""
    threads = StoreThreads()
    yield threads
    threads.close()


def opened(pins: Pins, threads: StoreThreads, time: FakeTime) -> PinBook:
    """Return a book that was read once."""
    book = PinBook(pins, threads=threads, clock=time)
    book.read()
    return book


def test_only_what_a_move_decided_is_in_it(threads: StoreThreads) -> None:
    """Else the settings file's pin holds."""
    moved = opened(Pins(), threads, FakeTime())
    followed = opened(Pins(is_moved=False), threads, FakeTime())
    alone = PinBook(None, threads=threads, clock=FakeTime())
    alone.read()

    assert (moved.moved("s"), followed.moved("s"), alone.moved("s")) == (V1, None, None)
    assert moved.moved("other") is None


def test_a_look_never_waits_and_has_old_knowledge_read_again(threads: StoreThreads) -> None:
    """Not more often than every `RENEW_S`, and one read at a time."""
    pins, time = Pins(), FakeTime()
    book = opened(pins, threads, time)
    pins.version = V2

    time.advance(RENEW_S - 0.1)
    assert (book.moved("s"), pins.num_reads) == (V1, 1)
    time.advance(0.2)
    pins.may_go_on.clear()
    assert [book.moved("s") for _ in range(3)] == [V1, V1, V1]
    pins.may_go_on.set()
    asyncio.run(threads.finish(timeout_s=10))

    assert (book.moved("s"), pins.num_reads) == (V2, 2)


def test_who_must_know_waits_for_it(threads: StoreThreads) -> None:
    """However long the client was idle; what is fresh is not read again."""
    pins, time = Pins(), FakeTime()
    book = opened(pins, threads, time)
    pins.version = V2
    time.advance(3600)

    asyncio.run(book.freshen(timeout_s=10))
    time.advance(FRESH_S / 2)
    asyncio.run(book.freshen(timeout_s=10))

    assert (book.moved("s"), pins.num_reads) == (V2, 2)


def test_a_store_that_hangs_costs_no_more_than_its_time(threads: StoreThreads) -> None:
    """What was known last holds, and only one thread hangs with it."""
    pins, time = Pins(), FakeTime()
    book = opened(pins, threads, time)
    pins.version = V2
    pins.may_go_on.clear()
    time.advance(3600)

    for _ in range(3):
        asyncio.run(book.freshen(timeout_s=0.01))
    assert (book.moved("s"), pins.num_reads) == (V1, 2)

    pins.may_go_on.set()
    asyncio.run(book.freshen(timeout_s=10))
    assert book.moved("s") == V2


def test_a_store_that_cannot_be_read_leaves_the_last_known_and_is_told_of_once(
    threads: StoreThreads, caplog: pytest.LogCaptureFixture
) -> None:
    """And it is asked again."""
    pins, time = Pins(), FakeTime()
    book = opened(pins, threads, time)
    pins.version, pins.is_broken = V2, True

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            time.advance(RENEW_S)
            asyncio.run(book.freshen(timeout_s=10))
    assert book.moved("s") == V1
    assert len([r for r in caplog.records if "last known ones hold" in r.message]) == 1

    pins.is_broken = False
    time.advance(RENEW_S)
    asyncio.run(book.freshen(timeout_s=10))
    assert book.moved("s") == V2


def test_a_closed_book_reads_no_more(
    threads: StoreThreads, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever still looks at a closed client's ladders gets what was known."""
    pins, time = Pins(), FakeTime()
    book = opened(pins, threads, time)
    book.close()
    threads.close()
    time.advance(3600)

    assert (book.moved("s"), pins.num_reads) == (V1, 1)
    assert not caplog.records
