"""A store that hangs, is gone or holds nonsense: it costs a call little, and no answer."""

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from failsoft.errors import LadderExhaustedError, StoreError
from failsoft.fallback.async_client import AsyncClient
from failsoft.fallback.memory_store import MemoryIdempotencyStore, MemoryReplyStore
from failsoft.fallback.store_threads import NUM_THREADS
from failsoft.idempotency_records import IdempotencyEntry
from failsoft.reply_records import CachedReply
from tests.fallback.fault_server import FaultServer
from tests.fallback.rig import ASK, PATIENT, Rig, ask, make_rig, settings_for


class BrokenReplies(MemoryReplyStore):
    """Its database is gone."""

    def get(self, key: str) -> CachedReply | None:
        raise StoreError("gone", url="sqlite://")


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
    settings = settings_for("cache", ("a", server_a.url), timeouts=PATIENT, deadline_s=2.0)
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
    rig = make_rig(settings_for(("a", server_a.url), timeouts=PATIENT, deadline_s=1.0), keys=keys)

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
    rig = make_rig(settings_for(("a", server_a.url), timeouts=PATIENT), keys=keys)

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
    rig = make_rig(settings_for(("a", server_a.url), timeouts=PATIENT, deadline_s=20), keys=keys)

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


def test_a_broken_store_fails_the_rung_and_not_the_ladder(server_a: FaultServer) -> None:
    """The model below still answers."""
    rig = make_rig(
        settings_for("cache", ("a", server_a.url), timeouts=PATIENT), replies=BrokenReplies()
    )

    assert ask(rig, temperature=0).rung == "a"
    assert rig.ledger == ["cache store_failed", "a ok"]


@pytest.mark.parametrize("text", ["{broken", "[]", '{"choices": []}', "[" * 100_000])
def test_a_kept_reply_that_is_none_fails_the_rung(server_a: FaultServer, text: str) -> None:
    """A row that was cut used to raise the parser's own error out of the call."""
    rig = make_rig(settings_for(("a", server_a.url), "cache", timeouts=PATIENT))

    async def act(client: AsyncClient) -> None:
        await client.chat(ASK)
        (kept,) = rig.replies._replies.values()
        rig.replies.put(replace(kept, reply_json=text))
        server_a.plan(default={"do": "status", "status": 503})
        with pytest.raises(LadderExhaustedError):
            await client.chat(ASK)

    play(rig, act)

    assert rig.ledger == ["a ok", "a http_status", "cache store_failed"]


@pytest.mark.parametrize("text", ["{broken", "{}", '{"body": 5}'])
def test_a_replay_that_is_none_is_asked_anew(server_a: FaultServer, text: str) -> None:
    """A call is worth more than its key."""
    rig = make_rig(settings_for(("a", server_a.url), timeouts=PATIENT))

    async def act(client: AsyncClient) -> bool:
        await client.chat(ASK, idempotency_key="k")
        ((place, entry),) = rig.keys._entries.items()
        rig.keys._entries[place] = replace(entry, reply_json=text)
        return (await client.chat(ASK, idempotency_key="k")).is_replay

    assert not play(rig, act)
    assert server_a.hits == 2


async def until(is_so: Any) -> None:
    """Return as soon as *is_so*; fail after a while."""
    for _ in range(400):
        if is_so():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come true in time")
