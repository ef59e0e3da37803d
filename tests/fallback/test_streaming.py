"""The commit point, what a cut after it costs, and callers who leave."""

import asyncio
import socket
import time
from typing import Any

import pytest

from failsoft.errors import InvalidCallError, StreamInterruptedError
from failsoft.fallback.reply import Delta, Origin
from tests.fallback.fault_server import Fault, FaultServer
from tests.fallback.rig import ASK, PATIENT, PRICE, TWICE, Rig, make_rig, settings_for

CUTS: list[Fault] = [
    {"do": "cut", "how": how, "tokens": 40} for how in ("eof", "done", "rst", "short", "json")
] + [
    {"do": "cut", "how": "event", "tokens": 40},
    {"do": "stall", "at": "token", "tokens": 40},
]


async def read(rig: Rig, **arguments: Any) -> tuple[list[Delta], BaseException | None]:
    """Return the deltas that came and what ended them."""
    deltas: list[Delta] = []
    try:
        async for delta in rig.client.stream(ASK, **arguments):
            deltas.append(delta)  # noqa: PERF401 - what came before the error is wanted too
    except StreamInterruptedError as exc:
        return deltas, exc
    return deltas, None


async def seconds_until_left(server: FaultServer, since_s: float) -> float:
    """Return how long after *since_s* its caller left *server*; the client is still open."""
    closed_s = await asyncio.to_thread(server.wait_closed, 1)
    assert closed_s is not None
    return closed_s - since_s


@pytest.mark.parametrize("fault", CUTS, ids=[str(f.get("how", "stall")) for f in CUTS])
def test_a_cut_after_the_first_delta_is_a_typed_error(
    server_a: FaultServer, server_b: FaultServer, fault: Fault
) -> None:
    """No other rung, no invented stop, nothing kept, and 40 tokens are charged."""
    server_a.plan(default=fault)
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), "cache", retry=TWICE))

    async def run() -> tuple[list[Delta], BaseException | None]:
        async with rig.client:
            return await read(rig, temperature=0.5)

    deltas, error = asyncio.run(run())

    text = "".join(f"A{i} " for i in range(40))
    assert isinstance(error, StreamInterruptedError)
    assert "".join(deltas) == error.text == text
    assert error.num_tokens == 40
    call, attempt = rig.recorder.records.calls[0], rig.recorder.records.attempts[0]
    assert error.attempt_id == f"{call.call_id}/0"
    assert "SECRET" not in str(error)
    assert (call.outcome, call.is_complete, call.num_output_tokens) == ("incomplete", False, 40)
    assert attempt.outcome in ("cut", "bad_reply", "timeout_gap")
    assert attempt.num_output_tokens == 40
    assert (server_a.hits, server_b.hits) == (1, 0)
    assert rig.replies.size().num_replies == 0


def test_an_error_event_before_content_shows_only_the_next_rungs_text(
    server_a: FaultServer, server_b: FaultServer
) -> None:
    """200, role chunk, then an error event: the caller sees rung 2, once."""
    role: Fault = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
    server_a.plan(default={"do": "events", "events": [role, {"error": {"message": "x"}}]})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url)))

    async def run() -> list[dict[str, Any]]:
        async with rig.client as client:
            stream = client.ask_stream({"messages": ASK})
            chunks = [chunk async for chunk in stream.chunks()]
            assert stream.reply.rung_index == 1
            return chunks

    chunks = asyncio.run(run())

    assert {chunk["model"] for chunk in chunks} == {"model-B"}
    roles = [c["choices"][0]["delta"].get("role") for c in chunks]
    assert roles.count("assistant") == 1
    assert all(chunk["choices"] for chunk in chunks), "the usage chunk was not asked for"


def test_the_usage_chunk_comes_when_it_is_asked_for(server_a: FaultServer) -> None:
    """As OpenAI does: last, without choices."""
    rig = make_rig(settings_for(("a", server_a.url)))

    async def run() -> list[dict[str, Any]]:
        async with rig.client as client:
            body = {"messages": ASK, "stream_options": {"include_usage": True}}
            return [chunk async for chunk in client.ask_stream(body).chunks()]

    chunks = asyncio.run(run())

    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 3


def test_a_streamed_reply_is_the_whole_one(server_a: FaultServer) -> None:
    """Text, usage, cost and ledger, as for a call that was not streamed."""
    rig = make_rig(settings_for(("a", server_a.url)))

    async def run() -> None:
        async with rig.client as client:
            stream = client.stream(ASK)
            with pytest.raises(RuntimeError):
                _ = stream.reply
            text = "".join([delta async for delta in stream])
            assert stream.reply.text == text == "A0 A1 A2 "
            expected = (7 * PRICE.input_per_mtok + 3 * PRICE.output_per_mtok) / 1e6
            assert stream.reply.cost == pytest.approx(expected)

    asyncio.run(run())

    call = rig.recorder.records.calls[0]
    assert (call.outcome, call.is_stream, call.is_complete) == ("ok", True, True)
    assert call.ttft_s is not None
    assert call.ttft_s <= call.e2e_s


@pytest.mark.parametrize("at", ["silence", "headers", "role", "token"])
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_a_caller_who_leaves_cancels_everything_behind_it(
    server_a: FaultServer,
    server_b: FaultServer,
    at: str,
    is_stream: bool,
) -> None:
    """At once, before the first text too, and no new upstream call after."""
    server_a.plan(default={"do": "stall", "at": at})
    settings = settings_for(("a", server_a.url), ("b", server_b.url), retry=TWICE, timeouts=PATIENT)
    rig = make_rig(settings)

    async def run() -> float:
        async with rig.client as client:
            work = read(rig) if is_stream else client.chat(ASK)
            task = asyncio.create_task(work)
            await asyncio.to_thread(server_a.wait_hits, 1)
            await asyncio.sleep(0.1)  # what comes before the silence is read
            left_s = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await seconds_until_left(server_a, left_s)

    assert asyncio.run(run()) < 1
    assert (server_a.hits, server_b.hits) == (1, 0)
    assert rig.ledger == ["a cancelled"]
    assert rig.recorder.records.calls[0].outcome == "cancelled"


def test_a_break_out_of_the_loop_cancels_too(server_a: FaultServer) -> None:
    """Leaving the loop is leaving the call."""
    server_a.plan(default={"do": "stall", "at": "token"})
    rig = make_rig(settings_for(("a", server_a.url), timeouts=PATIENT))

    async def run() -> float:
        async with rig.client as client:
            stream = client.stream(ASK)
            async for _ in stream:
                break
            return await seconds_until_left(server_a, time.monotonic())

    assert asyncio.run(run()) < 1
    assert rig.ledger == ["a cancelled"]


def test_a_caller_who_leaves_while_a_retry_waits_cancels_the_retry(server_a: FaultServer) -> None:
    """Leading gateways start 5 to 10 new upstream calls for 5 callers who are gone."""
    server_a.plan(default={"do": "status", "status": 429, "headers": {"retry-after": "1"}})
    rig = make_rig(settings_for(("a", server_a.url), retry=TWICE))

    async def run() -> None:
        async with rig.client as client:
            task = asyncio.create_task(client.chat(ASK))
            await asyncio.to_thread(server_a.wait_hits, 1)
            await asyncio.sleep(0.1)
            task.cancel()
            await asyncio.sleep(1.2)

    asyncio.run(run())

    assert server_a.hits == 1


def test_a_slow_reader_is_no_silent_endpoint(server_a: FaultServer) -> None:
    """The gap clock counts the endpoint's silence, not the caller's."""
    server_a.plan(default={"do": "ok", "tokens": 3, "gap_s": 0.45})
    rig = make_rig(settings_for(("a", server_a.url)))

    async def run() -> list[str]:
        async with rig.client as client:
            deltas: list[str] = []
            async for delta in client.stream(ASK):
                deltas.append(delta)
                await asyncio.sleep(0.35)  # longer than the gap clock of 0.3
            return deltas

    assert "".join(asyncio.run(run())) == "A0 A1 A2 "


def test_the_deadline_ends_a_stream_that_flows(server_a: FaultServer) -> None:
    """It flows too slowly to be done in time: a typed error at the deadline."""
    server_a.plan(default={"do": "ok", "tokens": 100, "gap_s": 0.05})
    rig = make_rig(settings_for(("a", server_a.url)))

    async def run() -> tuple[float, BaseException | None]:
        async with rig.client:
            began_s = time.monotonic()
            _, error = await read(rig, deadline_s=0.5)
            return time.monotonic() - began_s, error

    took_s, error = asyncio.run(run())

    assert isinstance(error, StreamInterruptedError)
    assert 0.45 < took_s < 2  # whole it takes 5 s
    assert rig.ledger == ["a deadline"]


def test_leaving_after_the_last_delta_is_not_leaving_early(server_a: FaultServer) -> None:
    """The reply was whole: it is charged, kept and counted as such."""
    rig = make_rig(settings_for(("a", server_a.url), "cache"))

    async def run() -> None:
        async with rig.client as client:
            stream = client.ask_stream({"messages": ASK})
            async for chunk in stream.chunks():
                if chunk["choices"][0]["finish_reason"]:
                    break
            await asyncio.sleep(0.05)

    asyncio.run(run())

    assert rig.recorder.records.calls[0].outcome == "ok"
    assert rig.replies.size().num_replies == 1


def test_a_fault_after_the_last_finish_reason_takes_nothing_away(server_a: FaultServer) -> None:
    """The reply is whole: an error in its tail is not the caller's concern."""
    text: Fault = {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]}
    for tail in ({"error": {"message": "x"}}, "{broken"):
        server_a.plan(default={"do": "events", "events": [text, tail]})
        rig = make_rig(settings_for(("a", server_a.url)))

        async def run(rig: Rig = rig) -> tuple[str, BaseException | None]:
            async with rig.client:
                deltas, error = await read(rig)
                return "".join(deltas), error

        assert asyncio.run(run()) == ("hi", None)
        assert rig.recorder.records.calls[0].outcome == "ok"


def test_a_caller_who_leaves_while_it_connects_has_sent_nothing() -> None:
    """The ledger counts what reached an endpoint; this never did."""
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for waiting in (first, second):  # nobody accepts, so the next connection hangs
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        rig = make_rig(settings_for(("a", f"http://127.0.0.1:{full.getsockname()[1]}/v1")))

        async def run() -> None:
            async with rig.client as client:
                task = asyncio.create_task(client.chat(ASK))
                await asyncio.sleep(0.1)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

        asyncio.run(run())

    (attempt,) = rig.recorder.records.attempts
    assert (attempt.outcome, attempt.was_sent) == ("cancelled", False)
    assert rig.recorder.records.calls[0].num_attempts == 0


def test_where_a_stream_comes_from_is_known_at_its_first_chunk(
    server_a: FaultServer, server_b: FaultServer
) -> None:
    """For a server, whose headers leave before the reply is whole."""
    server_a.plan(default={"do": "status", "status": 500})
    server_b.plan(default={"do": "ok", "gap_s": 0.05, "version": "ab" * 32})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url)))

    async def run() -> tuple[list[Origin | None], list[bool]]:
        origins: list[Origin | None] = []
        ends: list[bool] = []
        async with rig.client as client, client.ask_stream({"messages": ASK}) as stream:
            origins.append(stream.origin)
            while await stream.next_chunks() is not None:
                origins.append(stream.origin)
                ends.append(stream.is_read)
        return origins, ends

    (before, *origins), ends = asyncio.run(run())

    assert before is None
    assert set(origins) == {Origin(rung="b", version="ab" * 32, num_sent=2)}
    assert ends == [False] * (len(ends) - 1) + [True]


def test_a_server_may_name_its_calls(server_a: FaultServer) -> None:
    """Before it asks, so that an error too has the id that is in the ledger."""
    rig = make_rig(settings_for(("a", server_a.url)))

    async def run() -> str:
        async with rig.client as client:
            reply = await client.chat(ASK, call_id="mine-1")
            with pytest.raises(InvalidCallError):
                await client.chat(ASK, call_id="")
            return reply.call_id

    assert asyncio.run(run()) == "mine-1"
    assert [call.call_id for call in rig.recorder.records.calls] == ["mine-1"]
    assert server_a.stats()["ids"] == ["mine-1-0"]
