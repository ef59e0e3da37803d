"""Parallel callers of the same request."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from failsoft.config.settings import CacheConfig
from failsoft.errors import LadderExhaustedError, StreamInterruptedError
from failsoft.fallback.reply import Reply
from tests.fallback.fault_server import FaultServer
from tests.fallback.rig import ASK, PATIENT, Rig, make_rig, settings_for

SLOW = {"do": "ok", "delay_s": 0.2}


def make(server: FaultServer) -> Rig:
    """Return a ladder of one model and a cache."""
    return make_rig(settings_for(("a", server.url), "cache", timeouts=PATIENT, deadline_s=20))


def test_ten_identical_parallel_calls_hit_upstream_once(
    server_a: FaultServer, record_property: Callable[[str, object], None]
) -> None:
    """Two leading gateways make ten upstream calls of them."""
    server_a.plan(default=SLOW)
    rig = make(server_a)

    async def run() -> list[Reply]:
        async with rig.client as client:
            return await asyncio.gather(*(client.chat(ASK, temperature=0) for _ in range(10)))

    replies = asyncio.run(run())

    assert {reply.text for reply in replies} == {"A0 A1 A2 "}
    assert len({reply.call_id for reply in replies}) == 10
    record_property("upstream calls", server_a.hits)
    assert server_a.hits == 1
    assert len(rig.recorder.records.calls) == 10
    assert sum(call.cost or 0 for call in rig.recorder.records.calls) == pytest.approx(1.3e-05)


def test_parallel_streams_share_and_each_gets_every_chunk(server_a: FaultServer) -> None:
    """Whoever joins late gets what came before."""
    server_a.plan(default={"do": "ok", "tokens": 10, "gap_s": 0.03})
    rig = make(server_a)

    async def read(wait_s: float) -> str:
        await asyncio.sleep(wait_s)
        return "".join([d async for d in rig.client.stream(ASK, temperature=0)])

    async def run() -> list[str]:
        async with rig.client:
            return await asyncio.gather(*(read(i * 0.05) for i in range(4)))

    texts = asyncio.run(run())

    assert set(texts) == {"".join(f"A{i} " for i in range(10))}
    assert server_a.hits == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"temperature": 0.7},
        {"temperature": 0, "cache": "off"},
        {"temperature": 0, "tools": [{}]},
    ],
)
def test_calls_that_want_their_own_answer_get_it(
    server_a: FaultServer, arguments: dict[str, Any]
) -> None:
    """Sampling, an opt-out and tools are never shared."""
    server_a.plan(default=SLOW)
    rig = make(server_a)

    async def run() -> None:
        async with rig.client as client:
            await asyncio.gather(*(client.chat(ASK, **arguments) for _ in range(3)))

    asyncio.run(run())

    assert server_a.hits == 3


def test_tenants_never_share(server_a: FaultServer) -> None:
    """Not even a flight."""
    server_a.plan(default=SLOW)
    rig = make(server_a)

    async def run() -> None:
        async with rig.client as client:
            await asyncio.gather(
                *(client.chat(ASK, temperature=0, tenant=t) for t in ("x", "y", "x"))
            )

    asyncio.run(run())

    assert server_a.hits == 2


def test_a_leader_who_leaves_stops_nothing_for_the_others(server_a: FaultServer) -> None:
    """The flight goes on while anybody waits."""
    server_a.plan(default=SLOW)
    rig = make(server_a)

    async def run() -> str:
        async with rig.client as client:
            leader = asyncio.create_task(client.chat(ASK, temperature=0))
            await asyncio.sleep(0.05)
            follower = asyncio.create_task(client.chat(ASK, temperature=0))
            await asyncio.sleep(0.05)
            leader.cancel()
            return (await follower).text

    assert asyncio.run(run()) == "A0 A1 A2 "
    assert server_a.hits == 1


def test_when_the_last_caller_leaves_the_flight_is_cancelled(server_a: FaultServer) -> None:
    """And who comes after it starts a new one."""
    server_a.plan({"do": "stall"})
    rig = make(server_a)

    async def run() -> tuple[float, str]:
        async with rig.client as client:
            tasks = [asyncio.create_task(client.chat(ASK, temperature=0)) for _ in range(3)]
            await asyncio.to_thread(server_a.wait_hits, 1)
            left_s = time.monotonic()
            for task in tasks:
                task.cancel()
            next_one = asyncio.create_task(client.chat(ASK, temperature=0))
            await asyncio.gather(*tasks, return_exceptions=True)
            text = (await next_one).text
            # Closing the client would close the connection too.
            closed_s = await asyncio.to_thread(server_a.wait_closed, 1)
            assert closed_s is not None
            return closed_s - left_s, text

    took_s, text = asyncio.run(run())

    assert took_s < 1
    assert text == "A0 A1 A2 "
    assert server_a.hits == 2


def test_followers_keep_their_own_deadlines(server_a: FaultServer) -> None:
    """A shorter one ends earlier; a longer one outlives its leader's."""
    server_a.plan({"do": "stall"}, default="ok")
    rig = make(server_a)

    async def run() -> tuple[BaseException | Reply, ...]:
        async with rig.client as client:
            leader = asyncio.create_task(client.chat(ASK, temperature=0, deadline_s=0.3))
            await asyncio.sleep(0.02)
            others = [client.chat(ASK, temperature=0, deadline_s=s) for s in (0.1, 2.0)]
            return tuple(await asyncio.gather(leader, *others, return_exceptions=True))

    leader, short, long = asyncio.run(run())

    assert isinstance(leader, LadderExhaustedError)
    assert isinstance(short, LadderExhaustedError)
    assert short.status == 504
    assert isinstance(long, Reply)
    assert server_a.hits == 2


def test_a_failure_is_shared_and_not_kept(server_a: FaultServer) -> None:
    """Everybody on the flight hears of it; the next call asks anew."""
    server_a.plan({"do": "status", "status": 500}, default="ok")
    rig = make(server_a)

    async def run() -> Reply:
        async with rig.client as client:
            results = await asyncio.gather(
                *(client.chat(ASK, temperature=0) for _ in range(3)), return_exceptions=True
            )
            assert all(isinstance(r, LadderExhaustedError) for r in results)
            return await client.chat(ASK, temperature=0)

    assert asyncio.run(run()).rung == "a"
    assert server_a.hits == 2


def test_a_shared_stream_ends_at_each_callers_own_deadline(server_a: FaultServer) -> None:
    """The shorter deadline gets a typed error with what was delivered, the other the whole."""
    server_a.plan(default={"do": "ok", "tokens": 10, "gap_s": 0.05})
    rig = make(server_a)

    async def read(deadline_s: float) -> tuple[str, BaseException | None]:
        deltas: list[str] = []
        try:
            async for delta in rig.client.stream(ASK, temperature=0, deadline_s=deadline_s):
                deltas.append(delta)  # noqa: PERF401 - what came before the error is wanted too
        except StreamInterruptedError as exc:
            return "".join(deltas), exc
        return "".join(deltas), None

    async def run() -> tuple[tuple[str, BaseException | None], ...]:
        async with rig.client:
            return await asyncio.gather(read(3.0), read(0.25))

    (whole, none), (part, error) = asyncio.run(run())

    assert none is None
    assert isinstance(error, StreamInterruptedError)
    assert error.text == part
    assert whole == "".join(f"A{i} " for i in range(10))
    assert whole.startswith(part)
    assert 0 < len(part) < len(whole)
    assert server_a.hits == 1


def test_a_live_answer_is_shared_only_by_calls_that_ask_the_very_same(
    server_a: FaultServer,
) -> None:
    """``match = "messages"`` is for kept replies: who asked 100 tokens used to get 1."""
    server_a.plan(default=SLOW)
    cache = CacheConfig(match="messages")
    rig = make_rig(settings_for(("a", server_a.url), "cache", cache=cache, timeouts=PATIENT))

    async def run() -> None:
        async with rig.client as client:
            await asyncio.gather(
                *(client.chat(ASK, temperature=0, max_tokens=n) for n in (1, 100, 100))
            )

    asyncio.run(run())

    assert server_a.hits == 2


def test_the_first_caller_hears_every_cause_at_its_deadline(server_a: FaultServer) -> None:
    """Its own timer used to win: no cause, and the attempt entered as if it had left."""
    server_a.plan(default="stall")
    rig = make_rig(settings_for("cache", ("a", server_a.url), timeouts=PATIENT))

    async def run() -> LadderExhaustedError:
        async with rig.client as client:
            with pytest.raises(LadderExhaustedError) as caught:
                await client.chat(ASK, temperature=0, deadline_s=0.3)
            return caught.value

    error = asyncio.run(run())

    assert error.status == 504
    assert len(error.attempts) == 2
    assert rig.ledger == ["cache cache_miss", "a deadline"]


def test_a_stream_is_not_joined_by_a_caller_with_much_more_time(server_a: FaultServer) -> None:
    """It would be cut at the first caller's deadline, and a stream cannot be begun again."""
    server_a.plan(default={"do": "ok", "tokens": 10, "gap_s": 0.05})
    rig = make(server_a)

    async def read(deadline_s: float) -> str:
        deltas: list[str] = []
        try:
            async for delta in rig.client.stream(ASK, temperature=0, deadline_s=deadline_s):
                deltas.append(delta)  # noqa: PERF401 - what came before the error is wanted too
        except StreamInterruptedError:
            deltas.append("cut")
        return "".join(deltas)

    async def run() -> list[str]:
        async with rig.client:
            return list(await asyncio.gather(read(0.25), read(3.0), read(3.0)))

    short, *long = asyncio.run(run())

    assert short.endswith("cut")
    assert long == ["".join(f"A{i} " for i in range(10))] * 2
    assert server_a.hits == 2


def test_callers_of_one_flight_share_no_object(server_a: FaultServer) -> None:
    """Who changes the reply in hand used to change everybody's."""
    server_a.plan(default=SLOW)
    rig = make(server_a)

    async def run() -> list[Reply]:
        async with rig.client as client:
            return await asyncio.gather(*(client.chat(ASK, temperature=0) for _ in range(3)))

    first, *others = asyncio.run(run())
    first.body["choices"][0]["message"]["content"] = "changed"

    assert server_a.hits == 1
    assert [reply.text for reply in others] == ["A0 A1 A2 "] * 2
