"""A tool call that the engine holds until it is whole: a slow writer is no silent one."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from failsoft.call_records import AttemptRecord
from failsoft.config.settings import BreakerConfig, TimeoutConfig
from failsoft.errors import LadderExhaustedError, StreamInterruptedError
from failsoft.fallback.async_client import AsyncClient
from failsoft.fallback.failure import Failure
from failsoft.fallback.reply import Reply
from failsoft.fallback.transport import HTTPReply
from tests.engine.http.rig import MODEL, ids_of
from tests.engine.http.tiny_server import TinyServer, tiny_server
from tests.fallback.fault_server import FaultServer
from tests.fallback.rig import ASK, FAST, NEVER_OPEN, Rig, make_rig, memory, settings_for
from tests.fallback.test_attempt import SSE, Told, client_of, event, text

STEP_S = 0.015
CLOCKS = TimeoutConfig(connect_s=2, first_token_s=1.6, gap_s=1.0)
NUM_CHARS = 90
"""Of the one argument. With the call's notation some 140 steps: longer than either clock."""
NOTE = {
    "type": "object",
    "properties": {"note": {"type": "string", "minLength": NUM_CHARS, "maxLength": NUM_CHARS}},
    "required": ["note"],
    "additionalProperties": False,
}
CALL: dict[str, Any] = {
    "tools": [{"type": "function", "function": {"name": "keep", "parameters": NOTE}}],
    "parallel_tool_calls": False,
    "response_format": {"type": "json_object"},  # a call or JSON, and the bias says which
    "logit_bias": {str(ids_of("<")[0]): 100},
    "max_tokens": 400,
}
"""Makes a random model call a tool that it need not call."""


@dataclass(slots=True)
class Pace:
    """How fast the engine steps."""

    num_left: int | None = None
    """Steps until it freezes; None while it does not."""
    thaw: threading.Event = field(default_factory=threading.Event)

    def __call__(self) -> None:
        """Rest before a step, or freeze there."""
        if self.num_left is not None:
            self.num_left -= 1
            if self.num_left < 0:
                self.thaw.wait()
        time.sleep(STEP_S)


@contextmanager
def slow_engine() -> Iterator[tuple[TinyServer, Pace]]:
    """Serve a random model in slow steps."""
    pace = Pace()
    with tiny_server(num_kv_blocks=256, before_forward=pace) as server:
        try:
            yield server, pace
        finally:
            pace.thaw.set()


@pytest.fixture(scope="module")
def shared() -> Iterator[TinyServer]:
    """A slow engine that never freezes."""
    with slow_engine() as (server, _):
        yield server


def rig_of(*rungs: tuple[str, str], breaker: BreakerConfig = NEVER_OPEN) -> Rig:
    """Return a ladder that asks for *rungs*' model."""
    settings = settings_for(
        *rungs, timeouts=CLOCKS, breaker=breaker, deadline_s=30, endpoint={"model": MODEL}
    )
    return make_rig(settings)


async def streamed(client: AsyncClient, **fields: Any) -> tuple[list[dict[str, Any]], Reply]:
    """Return the chunks of a streamed call, and the reply."""
    stream = client.ask_stream({"messages": ASK, **fields})
    chunks = [chunk async for chunk in stream.chunks()]
    return chunks, stream.reply


def test_a_call_that_takes_longer_than_the_clocks_arrives_whole(shared: TinyServer) -> None:
    """Whole and streamed, by one attempt each, with a first token that is not slow."""
    rig = rig_of(("a", f"{shared.url}/v1"), breaker=BreakerConfig(min_calls=1, failure_ratio=0.5))

    async def run() -> tuple[Reply, tuple[list[dict[str, Any]], Reply]]:
        async with rig.client as client:
            other = asyncio.create_task(streamed(client, **CALL))
            return await client.chat(ASK, **CALL), await other

    whole, (chunks, reply) = asyncio.run(run())

    for each in (whole, reply):
        assert each.finish_reason == "tool_calls"
        [call] = each.tool_calls
        assert json.loads(call["function"]["arguments"]) == {"note": "<" * NUM_CHARS}
        [attempt] = each.attempts
        assert attempt.total_s > CLOCKS.first_token_s > CLOCKS.gap_s
        assert attempt.ttft_s is not None
        assert attempt.ttft_s < CLOCKS.first_token_s * 0.8
    assert rig.sent == ["a ok", "a ok"]
    assert not rig.recorder.records.events  # no breaker has opened
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert [sorted(delta) for delta in deltas] == [
        ["content", "role", "tool_calls"],
        ["tool_calls"],
        [],
    ]
    assert not any(chunk.get("usage") for chunk in chunks)


def test_an_engine_that_freezes_in_a_call_is_cut_by_the_gap_clock(server_b: FaultServer) -> None:
    """Nothing was handed on, so the next rung answers; the tokens so far are in the ledger."""
    with slow_engine() as (server, pace):
        rig = rig_of(("a", f"{server.url}/v1"), ("b", server_b.url))
        pace.num_left = 30

        async def run() -> tuple[list[dict[str, Any]], Reply]:
            async with rig.client as client:
                return await streamed(client, **CALL)

        _, reply = asyncio.run(run())

    first, second = reply.attempts
    assert (first.outcome, second.outcome, reply.text) == ("timeout_gap", "ok", "B0 B1 B2 ")
    assert first.num_output_tokens is not None
    assert 20 <= first.num_output_tokens <= 30
    assert first.num_cached_tokens is None  # not known before its end
    assert first.ttft_s is not None
    assert first.ttft_s + CLOCKS.gap_s < first.total_s < first.ttft_s + 10 * CLOCKS.gap_s


def sign(count: int, **fields: Any) -> bytes:
    """Return the event that says how many tokens there are, and nothing else."""
    usage = {"prompt_tokens": 5, "completion_tokens": count, "total_tokens": 5 + count}
    chunk = {"choices": [{"index": 0, "delta": {}, "finish_reason": None}], "usage": usage}
    return b"data: %s\n\n" % json.dumps({**chunk, **fields}).encode()


def ask_of(steps: list[bytes | float]) -> Reply:
    """Return the reply of an endpoint that says *steps*."""

    async def run() -> Reply:
        async with asyncio.timeout(10), client_of(Told(steps, SSE), FAST) as client:
            return await client.chat(ASK)

    return asyncio.run(run())


@pytest.mark.parametrize("begin", [[], [text("one ")]], ids=["before-content", "after-content"])
def test_a_count_that_stands_still_resets_no_clock(begin: list[bytes | float]) -> None:
    """A stuck engine whose server still talks is found as it was."""
    with pytest.raises(LadderExhaustedError) as caught:
        ask_of(begin + [sign(3)] + [0.1, sign(3)] * 40)

    [attempt] = caught.value.attempts
    assert isinstance(attempt, AttemptRecord)
    assert attempt.outcome == "timeout_gap"
    assert FAST.gap_s * 0.9 < attempt.total_s < FAST.gap_s + 0.3


def test_signs_are_not_gathered_however_many_there_are() -> None:
    """A long call has thousands, and each is longer than its token."""
    signs: list[bytes | float] = [sign(count) for count in range(1, 3000)]

    reply = ask_of([*signs, text("late"), event(finish_reason="stop"), b"data: [DONE]\n\n"])

    assert reply.text == "late"


def test_a_chunk_that_says_more_than_a_count_is_handed_on() -> None:
    """Other servers count on every chunk, the one with the role included."""
    role = [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]
    end = [text("one"), event(finish_reason="stop"), b"data: [DONE]\n\n"]
    told = Told([sign(1, choices=role), 0.01, *end], SSE)

    async def run() -> list[dict[str, Any]]:
        async with client_of(told, FAST) as client:
            return (await streamed(client))[0]

    first, *_ = asyncio.run(run())
    assert first["choices"] == role


def test_signs_after_text_hold_the_gap_clock_up_while_they_come() -> None:
    """Once text was handed on, no other rung speaks: the end of the signs is the caller's error."""
    told = Told([text("one "), 0.15, sign(2), 0.15, sign(3), 0.15, sign(4), 60.0], SSE)

    async def run() -> float:
        async with client_of(told, FAST) as client:
            began_s = time.monotonic()
            with pytest.raises(StreamInterruptedError) as caught:
                _ = [delta async for delta in client.stream(ASK)]
            assert (caught.value.text, caught.value.num_tokens) == ("one ", 4)
            assert isinstance(caught.value.cause, Failure)
            assert caught.value.cause.outcome == "timeout_gap"
            return time.monotonic() - began_s

    assert 0.45 + FAST.gap_s * 0.9 < asyncio.run(run()) < 0.45 + FAST.gap_s + 0.5


@dataclass
class Changing(Told):
    """A transport with another reply to each request, the last one again and again."""

    others: list[Told] = field(default_factory=list)

    async def send(self, url: str, **arguments: Any) -> HTTPReply:
        """Reply."""
        if self.others:
            return await self.others.pop(0).send(url, **arguments)
        return await super().send(url, **arguments)


def test_a_probe_is_answered_by_the_first_token_though_its_text_is_held() -> None:
    """The breaker used to stay open until the call was whole, and others went elsewhere."""
    end: list[bytes | float] = [event(finish_reason="stop"), b"data: [DONE]\n\n"]
    broken = Told([b"data: {broken\n\n"], SSE)
    held = Told([sign(1), 0.1, sign(2), 0.1, sign(3), text("held"), *end], SSE)
    told = Changing([text("prompt"), *end], SSE, others=[broken, held])
    breaker = BreakerConfig(min_calls=1, open_s=0.01)
    settings = settings_for(("a", "http://127.0.0.1:9/v1"), breaker=breaker)
    client = AsyncClient(settings, backends=memory(), environ={}, make_transport=lambda: told)

    async def run() -> list[Reply]:
        async with client:
            with pytest.raises(LadderExhaustedError):
                await client.chat(ASK)
            await asyncio.sleep(0.02)
            probe = asyncio.create_task(client.chat(ASK))
            await asyncio.sleep(0.1)
            other = [{"role": "user", "content": "other"}]
            return [await client.chat(other), await probe]

    replies = asyncio.run(run())
    assert [reply.text for reply in replies] == ["prompt", "held"]
    assert [[a.outcome for a in reply.attempts] for reply in replies] == [["ok"], ["ok"]]
