"""Stalls at every stage, and the one deadline over all rungs: real sockets, real silence."""

import asyncio
import time

import pytest

from failsoft.config.settings import TimeoutConfig
from failsoft.errors import LadderExhaustedError, StreamInterruptedError
from failsoft.fallback.async_client import AsyncClient
from failsoft.fallback.breaker import STUCK_STREAMS
from tests.fallback.fault_server import Fault, FaultServer
from tests.fallback.rig import ASK, FAST, TWICE, ask, make_rig, settings_for

STALLS: list[tuple[str, Fault | str]] = [
    ("accepts-no-bytes", "no_read"),
    ("no-head", {"do": "stall", "at": "silence"}),
    ("headers-only", {"do": "stall", "at": "headers"}),
    ("role-then-silence", {"do": "stall", "at": "role"}),
    ("comments-only", {"do": "stall", "at": "comments"}),
]


@pytest.mark.parametrize(("fault"), [f for _, f in STALLS], ids=[n for n, _ in STALLS])
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_a_stall_ends_at_its_clock_and_the_next_rung_answers(
    server_a: FaultServer, server_b: FaultServer, fault: Fault | str, is_stream: bool
) -> None:
    """Well before a second clock could have run; the connection is closed at the endpoint."""
    timeouts = TimeoutConfig(connect_s=3, first_token_s=0.5, gap_s=3)
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), timeouts=timeouts))
    # The first rung needs a connection that is not open yet to be told to read nothing.
    server_a.plan(fault)

    async def run() -> tuple[str, float]:
        async with rig.client as client:
            began_s = time.monotonic()
            if not is_stream:
                text = (await client.chat(ASK)).text
            else:
                text = "".join([delta async for delta in client.stream(ASK)])
            return text, time.monotonic() - began_s

    text, took_s = asyncio.run(run())

    assert text == "B0 B1 B2 "
    first = rig.recorder.records.attempts[0]
    assert first.outcome == "timeout_first_token"
    assert 0.45 <= first.total_s <= took_s < 2.5  # a busy machine is late
    assert server_a.wait_closed(1) is not None


def test_one_token_then_silence_ends_at_the_gap_clock(
    server_a: FaultServer, server_b: FaultServer
) -> None:
    """A caller who wants the whole has seen nothing yet, so the next rung may answer."""
    server_a.plan({"do": "stall", "at": "token"})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url)))

    reply = ask(rig)

    assert reply.text == "B0 B1 B2 "
    first = rig.recorder.records.attempts[0]
    assert first.outcome == "timeout_gap"
    assert first.num_output_tokens == 1
    assert FAST.gap_s * 0.9 <= first.total_s - (first.ttft_s or 0) < FAST.gap_s * 5
    assert server_a.wait_closed(1) is not None


def test_after_three_streams_fell_silent_together_the_next_call_goes_elsewhere(
    server_a: FaultServer, server_b: FaultServer
) -> None:
    """Whoever was cut asks again, and must not wait for a first token that will not come."""
    server_a.plan(default={"do": "stall", "at": "token"})
    timeouts = TimeoutConfig(connect_s=0.5, first_token_s=3, gap_s=0.3)
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), timeouts=timeouts))

    async def cut(client: AsyncClient, number: int) -> None:
        with pytest.raises(StreamInterruptedError):
            async for _ in client.stream([{"role": "user", "content": f"number {number}"}]):
                pass

    async def run() -> float:
        async with rig.client as client:
            await asyncio.gather(*(cut(client, number) for number in range(STUCK_STREAMS)))
            began_s = time.monotonic()
            assert (await client.chat(ASK)).text == "B0 B1 B2 "
            return time.monotonic() - began_s

    assert asyncio.run(run()) < 2
    assert rig.sent == ["a timeout_gap"] * STUCK_STREAMS + ["b ok"]


def test_a_deadline_over_everything_is_kept(server_a: FaultServer, server_b: FaultServer) -> None:
    """Both rungs hang; the caller hears of it at the deadline, not after the sum of clocks."""
    server_a.plan(default="stall")
    server_b.plan(default="stall")
    timeouts = TimeoutConfig(connect_s=1, first_token_s=10, gap_s=5)
    settings = settings_for(
        ("a", server_a.url), ("b", server_b.url), "cache", retry=TWICE, timeouts=timeouts
    )
    rig = make_rig(settings)

    async def run() -> float:
        async with rig.client as client:
            began_s = time.monotonic()
            with pytest.raises(LadderExhaustedError) as caught:
                await client.chat(ASK, deadline_s=0.6)
            assert caught.value.status == 504
            return time.monotonic() - began_s

    took_s = asyncio.run(run())

    assert took_s < 1.1  # half of it again would be the second rung's own
    assert (server_a.hits, server_b.hits) == (1, 1)
    assert rig.recorder.records.calls[0].outcome == "deadline"


def test_the_remaining_deadline_travels_to_each_endpoint(
    server_a: FaultServer, server_b: FaultServer
) -> None:
    """Our engine drops work nobody waits for any more."""
    server_a.plan(default={"do": "status", "status": 404})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url)))

    ask(rig, deadline_s=2.0)

    first = int(server_a.stats()["requests"][0]["headers"]["x-failsoft-deadline-ms"])
    second = int(server_b.stats()["requests"][0]["headers"]["x-failsoft-deadline-ms"])
    assert 1500 < second <= first <= 2000
