"""Outages: what upstream sees while everything, or one rung, is down."""

import asyncio
import collections
import time
from collections.abc import Callable
from typing import Any

import pytest

from failsoft.config.settings import BreakerConfig, RetryConfig, TimeoutConfig
from failsoft.errors import LadderExhaustedError
from failsoft.fallback.breaker import STUCK_RUNNING, BreakerState
from failsoft.fallback.retry_budget import FLOOR
from tests.fallback.fault_server import Fault, FaultServer
from tests.fallback.rig import ASK, FAST, NEVER_OPEN, PATIENT, make_rig, settings_for

RETRY = RetryConfig(attempts=3, base_s=0.005, cap_s=0.02)
QUICK = BreakerConfig(min_calls=10, window_s=30, open_s=0.4)


async def load(client: Any, *, calls: int, per_s: float) -> list[str]:
    """Start *calls* at a steady rate; return each one's rung, or ``error``."""

    async def one() -> str:
        try:
            rung: str = (await client.chat(ASK)).rung
        except LadderExhaustedError:
            return "error"
        return rung

    tasks = []
    for _ in range(calls):
        tasks.append(asyncio.create_task(one()))
        await asyncio.sleep(1 / per_s)
    return list(await asyncio.gather(*tasks))


@pytest.mark.parametrize(
    ("fault", "breaker"),
    [
        ({"do": "status", "status": 503}, BreakerConfig()),
        ({"do": "status", "status": 503}, NEVER_OPEN),
        ({"do": "status", "status": 429}, BreakerConfig()),
        ({"do": "status", "status": 503, "code": "queue_full"}, BreakerConfig()),
        ("reset", BreakerConfig()),
    ],
    ids=["503", "503-without-breaker", "429", "queue-full", "reset"],
)
def test_everything_down_does_not_multiply_load(
    server_a: FaultServer,
    server_b: FaultServer,
    fault: Fault,
    breaker: BreakerConfig,
    record_property: Callable[[str, object], None],
) -> None:
    """100 calls/s, both models down: leaders make 3.1 and 6.0 upstream calls per call, we 1.15.

    Also where no breaker can help: a rate limit and a full queue are no illness. The first
    samples of the second rung's health are free, as is the budget's floor.
    """
    server_a.plan(default=fault)
    server_b.plan(default=fault)
    rig = make_rig(
        settings_for(("a", server_a.url), ("b", server_b.url), retry=RETRY, breaker=breaker)
    )

    async def run() -> list[str]:
        async with rig.client as client:
            return await load(client, calls=300, per_s=150)

    results = asyncio.run(run())

    upstream = server_a.hits + server_b.hits
    record_property("upstream calls per call", f"{(upstream - FLOOR) / 300:.2f}")
    free = FLOOR + 20  # the floor, and HEALTH_MIN_CALLS with what was in flight beside them
    assert set(results) == {"error"}
    assert upstream <= 1.15 * 300 + free
    assert upstream == len(rig.sent)


def test_one_rung_down_costs_nobody_an_answer(server_a: FaultServer, server_b: FaultServer) -> None:
    """Stepping down to a healthy rung is free: no budget stands in its way."""
    server_a.plan(default={"do": "status", "status": 429})
    rig = make_rig(
        settings_for(
            ("a", server_a.url),
            ("b", server_b.url),
            retry=RETRY,
            timeouts=PATIENT,
            deadline_s=20,
        )
    )

    async def run() -> list[str]:
        async with rig.client as client:
            return await load(client, calls=150, per_s=150)

    assert set(asyncio.run(run())) == {"b"}, collections.Counter(rig.ledger)


def test_recovery_is_found_by_one_probe(
    server_a: FaultServer, server_b: FaultServer, record_property: Callable[[str, object], None]
) -> None:
    """50 parallel calls meet an open breaker whose time is over: 1 asks, 49 go on.

    A leading gateway sends all 50 to the dead endpoint.
    """
    server_a.plan(default={"do": "status", "status": 503})
    rungs = ("a", server_a.url), ("b", server_b.url)
    rig = make_rig(settings_for(*rungs, breaker=QUICK, timeouts=PATIENT, deadline_s=20))

    async def run() -> tuple[int, list[str], list[str]]:
        async with rig.client as client:
            await load(client, calls=20, per_s=500)
            breaker = client.ladders["chat"].models[0].endpoint.breaker
            assert breaker.state is BreakerState.OPEN
            await asyncio.sleep(0.5)
            server_a.plan(default={"do": "status", "status": 503, "delay_s": 0.05})
            down = await asyncio.gather(*(client.chat(ASK) for _ in range(50)))
            probes = server_a.hits
            await asyncio.sleep(1.0)
            server_a.plan()
            await client.chat(ASK)
            up = await asyncio.gather(*(client.chat(ASK) for _ in range(10)))
            return probes, [r.rung for r in down], [r.rung for r in up]

    probes, down, up = asyncio.run(run())

    record_property("probes by 50 parallel calls", probes)
    assert probes == 1
    assert set(down) == {"b"}
    assert set(up) == {"a"}
    kinds = [event.kind for event in rig.recorder.records.events]
    assert kinds == [
        "breaker.open",
        "breaker.half_open",
        "breaker.open",
        "breaker.half_open",
        "breaker.closed",
    ]


@pytest.mark.parametrize("at", ["headers", "comments"])
def test_an_endpoint_alive_but_silent_is_paid_for_until_its_breaker_opens(
    server_a: FaultServer,
    server_b: FaultServer,
    at: str,
    record_property: Callable[[str, object], None],
) -> None:
    """40 calls: a leading gateway pays the clock on each, or hangs."""
    server_a.plan(default={"do": "stall", "at": at})
    timeouts = TimeoutConfig(connect_s=0.5, first_token_s=0.3, gap_s=0.5)
    breaker = BreakerConfig(min_calls=10, open_s=30)
    rig = make_rig(
        settings_for(("a", server_a.url), ("b", server_b.url), timeouts=timeouts, breaker=breaker)
    )

    async def run() -> list[float]:
        took = []
        async with rig.client as client:
            for _ in range(40):
                began_s = time.monotonic()
                assert (await client.chat(ASK)).rung == "b"
                took.append(time.monotonic() - began_s)
        return took

    took = asyncio.run(run())

    record_property("of 40 calls that paid for the silence", sum(t > 0.29 for t in took))
    assert sum(t > 0.29 for t in took) == server_a.hits == 5
    assert max(took[5:]) < 0.29


def test_a_callers_tiny_deadline_opens_no_breaker(server_a: FaultServer) -> None:
    """20 callers in a hurry say nothing about an endpoint that needs 100 ms."""
    server_a.plan(default={"do": "ok", "delay_s": 0.1})
    breaker = BreakerConfig(min_calls=2)
    rig = make_rig(settings_for(("a", server_a.url), breaker=breaker))

    async def run() -> None:
        async with rig.client as client:
            for _ in range(20):
                with pytest.raises(LadderExhaustedError):
                    await client.chat(ASK, deadline_s=0.03)
            assert (await client.chat(ASK)).rung == "a"

    asyncio.run(run())


def test_callers_faults_and_leavers_open_no_breaker(server_a: FaultServer) -> None:
    """Neither says anything about the endpoint."""
    server_a.plan(*[{"do": "status", "status": 400}] * 10, *["stall"] * 10)
    rig = make_rig(settings_for(("a", server_a.url), breaker=BreakerConfig(min_calls=2)))

    async def run() -> None:
        async with rig.client as client:
            await asyncio.gather(*(client.chat(ASK) for _ in range(10)), return_exceptions=True)
            for _ in range(10):
                task = asyncio.create_task(client.chat(ASK))
                await asyncio.sleep(0.02)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            assert (await client.chat(ASK)).rung == "a"

    asyncio.run(run())


def test_a_long_stream_that_probes_closes_the_breaker_at_its_first_token(
    server_a: FaultServer, server_b: FaultServer
) -> None:
    """A probe needs no end to tell that the endpoint is back."""
    server_a.plan(default={"do": "status", "status": 503})
    settings = settings_for(("a", server_a.url), ("b", server_b.url), breaker=QUICK)
    rig = make_rig(settings)

    async def run() -> str:
        async with rig.client as client:
            await load(client, calls=20, per_s=500)
            await asyncio.sleep(0.5)
            server_a.plan({"do": "ok", "tokens": 50, "gap_s": 0.05}, default="ok")
            async with client.stream(ASK) as stream:
                async for _ in stream:
                    return (await client.chat(ASK)).rung
        return "nothing"

    assert asyncio.run(run()) == "a"


def test_open_breakers_do_not_keep_an_answer_from_the_last_call(
    server_a: FaultServer, server_b: FaultServer
) -> None:
    """Both fail a third of their calls and both breakers are open: they are asked all the same.

    Rungs that mostly answer are better than an error, whatever the breaker's sample said.
    """
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), breaker=QUICK))

    async def run() -> list[str]:
        async with rig.client as client:
            for model in client.ladders["chat"].models:
                for _ in range(5):
                    permit = model.endpoint.breaker.acquire()
                    assert permit is not None
                    permit.fail(is_transport=True)
                assert model.endpoint.breaker.state is BreakerState.OPEN
            server_a.plan({"do": "reset"})
            return [(await client.chat(ASK)).rung for _ in range(3)]

    rungs = asyncio.run(run())

    assert rungs == ["b", "a", "a"]
    opened = ["a breaker_open", "b breaker_open"]
    assert rig.ledger == [*opened, "a reset", "b ok", *[*opened, "a ok"] * 2]


def test_an_endpoint_that_never_answers_is_left_alone_but_for_the_budget(
    server_a: FaultServer,
) -> None:
    """An open breaker with nobody below it lets through a tenth and the floor, no more."""
    server_a.plan(default={"do": "status", "status": 503})
    slow = BreakerConfig(min_calls=10, open_s=60)
    rig = make_rig(settings_for(("a", server_a.url), breaker=slow, retry=RETRY))

    async def run() -> list[str]:
        async with rig.client as client:
            return await load(client, calls=200, per_s=400)

    results = asyncio.run(run())

    assert set(results) == {"error"}
    assert server_a.hits <= 0.1 * 200 + FLOOR + 20


def test_callers_who_read_slowly_open_no_breaker(
    server_a: FaultServer, server_b: FaultServer
) -> None:
    """Three readers who paused used to make a healthy endpoint look stuck to everybody else."""
    server_a.plan(default={"do": "ok", "tokens": 30, "gap_s": 0.02})
    settings = settings_for(("a", server_a.url), ("b", server_b.url), breaker=BreakerConfig())
    rig = make_rig(settings)

    async def run() -> str:
        async with rig.client as client:
            streams = [client.ask_stream({"messages": ASK}).chunks() for _ in range(STUCK_RUNNING)]
            for stream in streams:
                await anext(stream)
            await asyncio.sleep(FAST.first_token_s + 0.1)
            rung = (await client.chat(ASK)).rung
            for stream in streams:
                await stream.aclose()
            return rung

    assert asyncio.run(run()) == "a"
    assert not rig.recorder.records.events
