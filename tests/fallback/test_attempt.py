"""One attempt, byte by byte: what arrives together, and what never arrives."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from failsoft.config.settings import TimeoutConfig
from failsoft.errors import CallRefusedError, LadderExhaustedError, StreamInterruptedError
from failsoft.fallback.async_client import AsyncClient
from failsoft.fallback.attempt import TAIL_S
from failsoft.fallback.failure import Failure
from failsoft.fallback.reply import Delta
from failsoft.fallback.transport import HTTPReply
from tests.fallback.rig import ASK, FAST, PATIENT, memory, settings_for

SSE = {"content-type": "text/event-stream"}
NEVER = 60.0


@dataclass
class Told:
    """A transport, and the one reply it has: bytes, and seconds of silence between them."""

    steps: list[bytes | float]
    headers: Mapping[str, str]
    status: int = 200
    connect_s: float | None = None

    async def send(self, url: str, **arguments: Any) -> HTTPReply:
        """Reply, anew to each request."""
        return replace(self, steps=list(self.steps))

    async def piece(self, timeout_s: float) -> bytes | None:
        """Return the next bytes, once the silence before them is over."""
        async with asyncio.timeout(timeout_s):
            while self.steps:
                step = self.steps.pop(0)
                if isinstance(step, bytes):
                    return step
                await asyncio.sleep(step)
        return None

    async def aclose(self) -> None:
        """Close nothing."""


def text(*words: str) -> bytes:
    """Return the events of some deltas."""
    chunks = ({"choices": [{"index": 0, "delta": {"content": word}}]} for word in words)
    return b"".join(b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in chunks)


def client_of(told: Told, timeouts: TimeoutConfig = PATIENT) -> AsyncClient:
    """Return a client whose only endpoint replies so."""
    return AsyncClient(
        settings_for(("a", "http://127.0.0.1:9/v1"), timeouts=timeouts, deadline_s=20),
        backends=memory(),
        environ={},
        make_transport=lambda: told,
    )


@pytest.mark.parametrize("tail", [b"data: [DONE]\n\n", b"data: {broken\n\n"])
def test_text_that_comes_with_the_fault_is_handed_on_before_it(tail: bytes) -> None:
    """One packet may hold both: the error used to count text that nobody was given."""
    told = Told([text("one "), 0.01, text("two ", "three") + tail], SSE)
    deltas: list[str] = []

    async def run() -> str:
        async with client_of(told) as client:
            try:
                async for delta in client.stream(ASK):
                    deltas.append(delta)  # noqa: PERF401 - what came before the error counts
            except StreamInterruptedError as exc:
                return exc.text
        return "no error"

    assert asyncio.run(run()) == "".join(deltas) == "one two three"


@pytest.mark.parametrize(
    ("status", "error"), [(500, LadderExhaustedError), (400, CallRefusedError)]
)
def test_an_error_whose_body_never_ends_is_judged_by_its_status(
    status: int, error: type[Exception]
) -> None:
    """The status says enough; a refusal used to become a silence of the whole clock."""
    told = Told([b'{"error": ', NEVER], {"content-type": "application/json"}, status=status)

    async def run() -> float:
        async with client_of(told) as client:
            began_s = time.monotonic()
            with pytest.raises(error):
                await client.chat(ASK, fallback=False)
            return time.monotonic() - began_s

    assert asyncio.run(run()) < TAIL_S * 4


class Flood(Told):
    """A reply whose last bytes come again for ever, as fast as they are read."""

    async def piece(self, timeout_s: float) -> bytes | None:
        """Return the next bytes; they lie ready, so no time-out ever ends a wait for them."""
        await asyncio.sleep(0)
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        assert isinstance(step, bytes)
        return step


def event(**choice: Any) -> bytes:
    """Return the event of one choice."""
    return b"data: %s\n\n" % json.dumps({"choices": [{"index": 0, "delta": {}, **choice}]}).encode()


COMMENT, EMPTY = b": still here\n\n", event()


@pytest.mark.parametrize("flood", [COMMENT, COMMENT[:5], EMPTY], ids=["comments", "line", "empty"])
def test_a_flood_of_nothing_before_the_text_ends_at_the_first_tokens_clock(flood: bytes) -> None:
    """It used to outrun the clock, which only rang where nothing lay ready."""
    told = Flood([event(delta={"role": "assistant"}), flood], SSE)

    async def run() -> None:
        async with asyncio.timeout(5), client_of(told, FAST) as client:
            await client.chat(ASK)

    with pytest.raises(LadderExhaustedError):
        asyncio.run(run())


@pytest.mark.parametrize("told", [Told, Flood])
@pytest.mark.parametrize("nothing", [COMMENT, EMPTY], ids=["comments", "empty"])
def test_what_is_no_content_resets_no_gap_clock(told: type[Told], nothing: bytes) -> None:
    """Neither a comment nor a delta without text, slow or fast: empty deltas used to."""
    steps: list[bytes | float] = [text("one ")]
    steps += [nothing] if told is Flood else [0.1, nothing] * 30

    async def run() -> float:
        async with asyncio.timeout(5), client_of(told(steps, SSE), FAST) as client:
            began_s = time.monotonic()
            with pytest.raises(StreamInterruptedError) as caught:
                _ = [delta async for delta in client.stream(ASK)]
            assert isinstance(caught.value.cause, Failure)
            assert caught.value.cause.outcome == "timeout_gap"
            return time.monotonic() - began_s

    assert FAST.gap_s * 0.9 < asyncio.run(run()) < FAST.gap_s + 0.5


def test_a_caller_who_rests_after_each_piece_uses_up_no_gap() -> None:
    """Its own time is no silence of the endpoint, also where empty deltas lie in between."""
    told = Told([text("one "), EMPTY, EMPTY, text("two"), event(finish_reason="stop")], SSE)

    async def run() -> str:
        async with client_of(told, FAST) as client:
            stream = client.ask_stream({"messages": ASK})
            words = ""
            while (chunks := await stream.next_chunks()) is not None:
                words += "".join(Delta.of(chunk) for chunk in chunks)
                await asyncio.sleep(FAST.gap_s * 0.7)
            return words

    assert asyncio.run(run()) == "one two"


def test_what_comes_after_the_end_is_not_waited_for() -> None:
    """A peer that goes on after ``[DONE]`` used to hold a whole reply for ever."""
    whole = text("one") + event(finish_reason="stop") + b"data: [DONE]\n\n"
    told = Flood([whole, b"more"], SSE)

    async def run() -> str:
        async with asyncio.timeout(5), client_of(told) as client:
            return (await client.chat(ASK)).text

    assert asyncio.run(run()) == "one"
