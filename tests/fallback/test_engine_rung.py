"""Our own HTTP server as a rung: what it says to the ladder and what the ladder says to it."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from failsoft.errors import LadderExhaustedError
from failsoft.fallback.reply import Reply
from tests.engine.fake_engine import FakeEngine
from tests.engine.http.rig import DIGEST, MODEL, Rig, answer, running, wait_until
from tests.fallback.fault_server import FaultServer
from tests.fallback.rig import ASK, TWICE, make_rig, settings_for

ENGINE = {"model": MODEL}


@pytest.fixture
def engine() -> Iterator[Rig]:
    """An engine that answers at once."""
    with running(FakeEngine(lambda request: answer("Hi."))) as rig:
        yield rig


def test_a_reply_of_our_engine_carries_its_digest_and_its_prices(engine: Rig) -> None:
    """Text, version and tokens, whole and streamed."""
    rig = make_rig(settings_for(("a", f"{engine.url}/v1"), endpoint=ENGINE))

    async def run() -> tuple[Reply, str]:
        async with rig.client as client:
            return await client.chat(ASK), "".join([d async for d in client.stream(ASK)])

    reply, streamed = asyncio.run(run())

    assert (reply.text, streamed, reply.rung, reply.version) == ("Hi.", "Hi.", "a", DIGEST)
    assert reply.usage.num_output_tokens == len(answer("Hi."))
    assert reply.cost is not None
    assert [a.version_digest for a in rig.recorder.records.attempts] == [DIGEST, DIGEST]


def test_the_rest_of_the_deadline_reaches_the_engine() -> None:
    """It drops dead work by itself, so the rest travels with each attempt."""
    with running(FakeEngine(lambda request: [9] * 400, step_s=0.05)) as engine:
        rig = make_rig(settings_for(("a", f"{engine.url}/v1"), endpoint=ENGINE))

        async def run() -> float:
            async with rig.client as client:
                began_s = time.monotonic()
                with pytest.raises(LadderExhaustedError) as caught:
                    await client.chat(ASK, deadline_s=0.4)
                assert caught.value.status == 504
                return began_s

        began_s = asyncio.run(run())
        (request,) = engine.engine.submitted
        has_ended = wait_until(lambda: engine.engine.stats().num_running == 0)

    assert request.deadline_s is not None
    assert began_s + 0.2 < request.deadline_s <= began_s + 0.45
    assert has_ended


def test_a_full_queue_steps_down_at_once_and_is_no_illness(server_b: FaultServer) -> None:
    """Shed at the door: no retry adds to the load, and the breaker keeps out of it."""
    full = FakeEngine(lambda request: [9] * 400, step_s=0.05, max_running=1, max_waiting=1)
    with running(full) as engine:
        rungs = ("a", f"{engine.url}/v1"), ("b", server_b.url)
        rig = make_rig(settings_for(*rungs, endpoint=ENGINE, retry=TWICE))

        async def run() -> list[Reply]:
            async with rig.client as client:
                held = [
                    asyncio.create_task(client.chat(ASK, deadline_s=20, fallback=False))
                    for _ in range(2)
                ]
                assert await asyncio.to_thread(
                    wait_until, lambda: len(engine.engine.submitted) == 2
                )
                replies = [await client.chat(ASK) for _ in range(12)]
                for task in held:
                    task.cancel()
                await asyncio.gather(*held, return_exceptions=True)
                return replies

        replies = asyncio.run(run())

    assert {reply.rung for reply in replies} == {"b"}
    assert {tuple(a.outcome for a in reply.attempts) for reply in replies} == {("queue_full", "ok")}
