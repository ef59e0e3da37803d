"""The same key and body: the work is done once."""

import asyncio
from typing import Any

import pytest

from failsoft.errors import (
    IdempotencyConflictError,
    IdempotencyRunningError,
    InvalidCallError,
    LadderExhaustedError,
)
from failsoft.fallback.async_client import AsyncClient
from failsoft.fallback.reply import Reply
from failsoft.fallback.surroundings import Surroundings
from tests.fallback.fake_time import FakeTime
from tests.fallback.fault_server import FaultServer
from tests.fallback.rig import ASK, PATIENT, Rig, make_rig, settings_for


def play(rig: Rig, act: Any) -> Any:
    """Run *act* with the client open."""

    async def run() -> Any:
        async with rig.client as client:
            return await act(client)

    return asyncio.run(run())


def test_a_done_key_plays_its_reply_back(server_a: FaultServer) -> None:
    """Also to a caller who streams; marked as a replay, and free."""
    rig = make_rig(settings_for(("a", server_a.url)))

    async def act(client: AsyncClient) -> tuple[Reply, Reply, str]:
        first = await client.chat(ASK, idempotency_key="k")
        second = await client.chat(ASK, idempotency_key="k")
        stream = client.stream(ASK, idempotency_key="k")
        return first, second, "".join([d async for d in stream])

    first, second, streamed = play(rig, act)

    assert not first.is_replay
    assert second.is_replay
    assert second.body == first.body
    assert (second.rung, second.cost) == ("a", 0.0)
    assert streamed == first.text
    assert server_a.hits == 1


def test_another_body_under_the_same_key_is_a_conflict(server_a: FaultServer) -> None:
    """Nothing is asked."""
    rig = make_rig(settings_for(("a", server_a.url)))

    async def act(client: AsyncClient) -> None:
        await client.chat(ASK, idempotency_key="k")
        with pytest.raises(IdempotencyConflictError):
            await client.chat(ASK, idempotency_key="k", temperature=1)

    play(rig, act)

    assert server_a.hits == 1
    assert rig.recorder.records.calls[1].outcome == "rejected"


def test_tenants_and_kinds_have_their_own_keys(server_a: FaultServer) -> None:
    """Scope is tenant plus endpoint."""
    rig = make_rig(settings_for(("a", server_a.url)))

    async def act(client: AsyncClient) -> None:
        await client.chat(ASK, idempotency_key="k", tenant="x")
        await client.chat(ASK, idempotency_key="k", tenant="y")

    play(rig, act)

    assert server_a.hits == 2


def test_a_running_key_is_refused_with_a_wait(server_a: FaultServer) -> None:
    """HTTP 409 with Retry-After."""
    server_a.plan(default={"do": "ok", "delay_s": 0.5})
    rig = make_rig(settings_for(("a", server_a.url), timeouts=PATIENT))

    async def act(client: AsyncClient) -> Reply:
        first = asyncio.create_task(client.chat(ASK, idempotency_key="k"))
        await asyncio.to_thread(server_a.wait_hits, 1)
        with pytest.raises(IdempotencyRunningError) as caught:
            await client.chat(ASK, idempotency_key="k")
        assert caught.value.retry_after_s > 0
        return await first

    assert play(rig, act).text == "A0 A1 A2 "
    assert server_a.hits == 1


@pytest.mark.parametrize("how", ["failed", "refused", "left"])
def test_a_call_that_did_not_answer_frees_its_key(server_a: FaultServer, how: str) -> None:
    """No work was done that could be played back."""
    fault = {"failed": {"do": "status", "status": 500}, "refused": {"do": "status", "status": 400}}
    server_a.plan(fault.get(how, {"do": "stall"}), default="ok")
    rig = make_rig(settings_for(("a", server_a.url)))

    async def act(client: AsyncClient) -> Reply:
        first = asyncio.create_task(client.chat(ASK, idempotency_key="k"))
        await asyncio.to_thread(server_a.wait_hits, 1)
        if how == "left":
            first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await asyncio.sleep(0.05)
        return await client.chat(ASK, idempotency_key="k")

    assert not play(rig, act).is_replay
    assert server_a.hits == 2


def test_a_crash_leaves_a_lease_that_runs_out(server_a: FaultServer) -> None:
    """A claim nobody finishes blocks the key no longer than deadline and slack."""
    wall = FakeTime(1_800_000_000.0)
    rig = make_rig(settings_for(("a", server_a.url)), surroundings=Surroundings(wall=wall))

    async def act(client: AsyncClient) -> None:
        rig.keys.finish = lambda entry, reply_json: False  # type: ignore[method-assign]
        await client.chat(ASK, idempotency_key="k")  # as if it had died before its write
        with pytest.raises(IdempotencyRunningError):
            await client.chat(ASK, idempotency_key="k")
        wall.advance(14)
        await client.chat(ASK, idempotency_key="k")

    play(rig, act)

    assert server_a.hits == 2


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_a_key_out_of_range_is_refused(server_a: FaultServer, key: str) -> None:
    """1..255 characters."""
    rig = make_rig(settings_for(("a", server_a.url)))

    async def act(client: AsyncClient) -> None:
        with pytest.raises(InvalidCallError, match=r"1\.\.255"):
            await client.chat(ASK, idempotency_key=key)

    play(rig, act)


def test_an_interrupted_stream_frees_its_key(server_a: FaultServer) -> None:
    """Half a reply is none."""
    server_a.plan({"do": "cut"}, default="ok")
    rig = make_rig(settings_for(("a", server_a.url)))

    async def act(client: AsyncClient) -> str:
        with pytest.raises(Exception, match="broke after"):
            async for _ in client.stream(ASK, idempotency_key="k"):
                pass
        await asyncio.sleep(0.05)
        return "".join([d async for d in client.stream(ASK, idempotency_key="k")])

    assert play(rig, act) == "A0 A1 A2 "


def test_an_exhausted_ladder_stays_an_error(server_a: FaultServer) -> None:
    """And keeps no reply."""
    server_a.plan(default={"do": "status", "status": 500})
    rig = make_rig(settings_for(("a", server_a.url)))

    async def act(client: AsyncClient) -> None:
        for _ in range(2):
            with pytest.raises(LadderExhaustedError):
                await client.chat(ASK, idempotency_key="k")
            await asyncio.sleep(0.05)

    play(rig, act)

    assert server_a.hits == 2
