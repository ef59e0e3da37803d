"""One attempt, byte by byte: what arrives together, and what never arrives."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from failsoft.errors import CallRefusedError, LadderExhaustedError, StreamInterruptedError
from failsoft.fallback.async_client import AsyncClient
from failsoft.fallback.attempt import TAIL_S
from failsoft.fallback.transport import HTTPReply
from tests.fallback.rig import ASK, PATIENT, memory, settings_for

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


def client_of(told: Told) -> AsyncClient:
    """Return a client whose only endpoint replies so."""
    return AsyncClient(
        settings_for(("a", "http://127.0.0.1:9/v1"), timeouts=PATIENT, deadline_s=20),
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
