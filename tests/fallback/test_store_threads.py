"""A store that hangs or is slow: no call waits for it longer than it can spare."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from failsoft.call_records import CachedReply, IdempotencyEntry
from failsoft.errors import StoreError
from failsoft.fallback.async_client import AsyncClient
from failsoft.fallback.memory_store import MemoryIdempotencyStore, MemoryReplyStore
from failsoft.fallback.store_threads import NUM_THREADS, StoreThreads
from tests.fallback.fault_server import FaultServer
from tests.fallback.rig import ASK, PATIENT, Rig, make_rig, settings_for


class HungReplies(MemoryReplyStore):
    """Reads wait until the test is over."""

    def __init__(self, over: threading.Event) -> None:
        super().__init__()
        self._over = over

    def get(self, key: str) -> CachedReply | None:
        self._over.wait(30)
        return super().get(key)


class SlowKeys(MemoryIdempotencyStore):
    """What is slow waits until the test says so."""

    def __init__(self, over: threading.Event, *slow: str) -> None:
        super().__init__()
        self._over = over
        self._slow = slow
        self.num_freed = 0

    def begin(self, key: str, tenant: str, fingerprint: str, *, lease_s: float) -> IdempotencyEntry:
        if "begin" in self._slow:
            self._over.wait(30)
        return super().begin(key, tenant, fingerprint, lease_s=lease_s)

    def finish(self, entry: IdempotencyEntry, reply_json: str) -> bool:
        if "finish" in self._slow:
            self._over.wait(30)
        return super().finish(entry, reply_json)

    def release(self, entry: IdempotencyEntry) -> None:
        super().release(entry)
        self.num_freed += 1


@pytest.fixture
def over() -> Iterator[threading.Event]:
    """An event that the hung store waits for; set at the end at the latest."""
    event = threading.Event()
    yield event
    event.set()


def play(rig: Rig, act: Any) -> Any:
    """Run *act* with the client open."""

    async def run() -> Any:
        async with rig.client as client:
            return await act(client)

    return asyncio.run(run())


def test_a_hung_cache_above_the_models_costs_them_a_moment(
    server_a: FaultServer, over: threading.Event
) -> None:
    """It used to take the whole deadline, and the model was never asked."""
    settings = settings_for("cache", ("a", server_a.url), deadline_s=2.0)
    rig = make_rig(settings, replies=HungReplies(over))

    async def act(client: AsyncClient) -> float:
        began_s = time.monotonic()
        assert (await client.chat(ASK, temperature=0)).rung == "a"
        over.set()
        return time.monotonic() - began_s

    assert play(rig, act) < 0.6
    assert rig.ledger == ["cache store_failed", "a ok"]


def test_a_hung_cache_holds_nobody_up_once_it_holds_every_thread(
    server_a: FaultServer, over: threading.Event
) -> None:
    """Nor does it keep a call from resolving its endpoint's name."""
    url = server_a.url.replace("127.0.0.1", "localhost")
    settings = settings_for("cache", ("a", url), deadline_s=5.0, timeouts=PATIENT)
    rig = make_rig(settings, replies=HungReplies(over))

    async def act(client: AsyncClient) -> float:
        texts = [[{"role": "user", "content": str(i)}] for i in range(2 * NUM_THREADS)]
        await asyncio.gather(*(client.chat(text, temperature=0) for text in texts))
        began_s = time.monotonic()
        await client.chat(ASK, temperature=0)
        over.set()
        return time.monotonic() - began_s

    assert play(rig, act) < 0.2


def test_hung_keys_cost_a_call_its_key_and_not_its_answer(
    server_a: FaultServer, over: threading.Event
) -> None:
    """A claim that comes too late is freed again."""
    keys = SlowKeys(over, "begin")
    rig = make_rig(settings_for(("a", server_a.url), deadline_s=1.0), keys=keys)

    async def act(client: AsyncClient) -> tuple[bool, bool]:
        first = await client.chat(ASK, idempotency_key="k")
        over.set()
        await until(lambda: keys.num_freed)
        return first.is_replay, (await client.chat(ASK, idempotency_key="k")).is_replay

    assert play(rig, act) == (False, False)
    assert server_a.hits == 2


def test_a_caller_who_leaves_while_its_key_is_claimed_leaves_the_key_free(
    server_a: FaultServer, over: threading.Event
) -> None:
    """Nobody was there to take the claim, so it used to block the key until its lease ended."""
    keys = SlowKeys(over, "begin")
    rig = make_rig(settings_for(("a", server_a.url)), keys=keys)

    async def act(client: AsyncClient) -> str:
        call = asyncio.create_task(client.chat(ASK, idempotency_key="k"))
        await asyncio.sleep(0.05)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        over.set()
        await until(lambda: keys.num_freed)
        return (await client.chat(ASK, idempotency_key="k")).text

    assert play(rig, act) == "A0 A1 A2 "


def test_a_slow_write_of_a_replay_goes_on_beside_the_caller(
    server_a: FaultServer, over: threading.Event
) -> None:
    """The reply is in hand: it used to wait for the write up to its deadline."""
    keys = SlowKeys(over, "finish")
    rig = make_rig(settings_for(("a", server_a.url), deadline_s=20), keys=keys)

    async def act(client: AsyncClient) -> tuple[float, bool]:
        began_s = time.monotonic()
        await client.chat(ASK, idempotency_key="k")
        took_s = time.monotonic() - began_s
        over.set()
        await until(lambda: not client._core._threads._started)
        return took_s, (await client.chat(ASK, idempotency_key="k")).is_replay

    took_s, is_replay = play(rig, act)

    assert took_s < 1.5
    assert is_replay


def test_the_stores_own_error_comes_through() -> None:
    """As raised."""

    def fail() -> None:
        raise StoreError("gone", url="sqlite://")

    async def run() -> None:
        with pytest.raises(StoreError, match="gone"):
            await StoreThreads().ask(fail, timeout_s=1)

    asyncio.run(run())


def test_what_was_started_is_finished_and_a_refusal_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Work beside a call never raises into it, also once the threads are closed."""
    threads = StoreThreads()
    done: list[int] = []

    def fail() -> None:
        raise StoreError("gone", url="sqlite://")

    async def run() -> None:
        threads.start(lambda: done.append(1), "not done")
        threads.start(fail, "refused")
        await threads.finish(timeout_s=5)
        threads.close()
        threads.start(lambda: done.append(2), "closed")

    asyncio.run(run())

    assert done == [1]
    assert [record.message for record in caplog.records] == ["refused", "closed"]


def test_a_forked_child_has_threads_of_its_own() -> None:
    """Its parent's do not run there."""
    threads = StoreThreads()
    assert asyncio.run(threads.ask(os.getpid, timeout_s=5)) == os.getpid()

    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if asyncio.run(threads.ask(os.getpid, timeout_s=5)) == os.getpid() else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == 0


async def until(is_so: Any) -> None:
    """Return as soon as *is_so*; fail after a while."""
    for _ in range(400):
        if is_so():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come true in time")
