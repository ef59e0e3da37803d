"""Stream an answer as server-sent events, exactly as OpenAI's clients read them.

Each event is one ``data:`` line and a blank line: without the blank line the
last one is never delivered. JSON is ASCII, so no line separator of Unicode's can
split an event in a client that splits on more than line feeds. A fault in the
middle is an event with ``error`` and no ``[DONE]``: clients raise on it.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send

from failsoft.engine.http.disconnect import cancel_when_gone
from failsoft.engine.http.errors import fault_of
from failsoft.engine.http.generation import Delta, Ended, Generation, Update
from failsoft.engine.http.usage import Usage
from failsoft.errors import EngineError

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]

_DONE = b"data: [DONE]\n\n"

MAX_INLINE_SCORED = 256
"""Log probabilities up to so many tokens are written on the loop: some milliseconds with 20
alternatives each. Those of a long prompt go to a thread, and other streams do not wait."""


class ChoiceShape(Protocol):
    """How one route writes a choice of a chunk, as the JSON text of an object.

    A list holds one for each chunk, in order; an empty one sends nothing.
    """

    def delta(self, delta: Delta) -> list[str]:
        """What is new."""

    def end(self, ended: Ended) -> list[str]:
        """The end of a choice."""

    def idle(self, index: int) -> str:
        """A choice of which nothing is new."""

    def beside(self, update: Update) -> str:
        """Fields of the first chunk beside its choices: a comma and JSON, or nothing."""


class StreamUsage:
    """Which chunks carry the usage.

    Args:
        is_last: A chunk of its own at the end, ``choices`` empty (``include_usage``).
        is_each: Also the usage so far on each chunk (``continuous_usage_stats``).
        is_progress: Also the usage so far on a chunk without text, for tokens whose text is held.
    """

    def __init__(self, usage: Usage, *, is_last: bool, is_each: bool, is_progress: bool) -> None:
        self.is_last = is_last
        self.is_progress = is_progress
        self._is_each = is_each and is_last
        self.usage = usage

    def field(self) -> str:
        """Return what a chunk with choices says of the usage: OpenAI sends null there."""
        if self._is_each:
            return f',"usage":{json.dumps(self.usage.as_dict())}'
        return ',"usage":null' if self.is_last else ""


class EventStream:
    """An ASGI response that submits a generation and streams it.

    Headers wait for the first chunk, so that a request which ends before it
    (deadline, drain, a failed forward) still gets its status code.

    A caller that stops reading holds up nobody: its events wait in memory, at most
    ``max_tokens`` of them, while the transport's buffer is full.

    Args:
        headers: HTTP headers beside the stream's own.
        head: Fields of every chunk but choices and usage.
    """

    def __init__(
        self,
        generation: Generation,
        *,
        headers: Mapping[str, str],
        head: dict[str, Any],
        shape: ChoiceShape,
        usage: StreamUsage,
    ) -> None:
        self._generation = generation
        own = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._headers = [*_HEADERS, *own]
        self._shape = shape
        self._usage = usage
        self._prefix = "data: " + json.dumps(head, separators=(",", ":"))[:-1] + ',"choices":['

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        Raises:
            EngineError: The generation ended before anything was sent.
        """
        is_started = False
        async with cancel_when_gone(receive, self._generation):
            try:
                async for updates in self._generation.updates():
                    events = await self._write(updates) or self._sign(updates)
                    if not events:
                        continue
                    if not is_started:
                        await send(_start(self._headers))
                        is_started = True
                    await send(_part(events))
            except EngineError as exc:
                if not is_started:
                    raise
                await send(_part(_event(fault_of(exc).body), is_last=True))
                return
            if not self._generation.is_cancelled:
                await send(_part(self._tail(), is_last=True))

    async def _write(self, updates: list[Update]) -> bytes:
        def write() -> bytes:
            return b"".join(map(self._chunk, updates))

        num_scored = sum(one.part.num_scored for one in updates if isinstance(one, Delta))
        return await asyncio.to_thread(write) if num_scored > MAX_INLINE_SCORED else write()

    def _sign(self, updates: list[Update]) -> bytes:
        """Return a chunk that says how many tokens there are, where that is asked for.

        What lets no text out for long (a call that is not whole, a stop string that has begun)
        would else look like an engine that hangs.
        """
        if not self._usage.is_progress:
            return b""
        usage = json.dumps(self._usage.usage.as_dict())
        idle = self._shape.idle(updates[-1].index)
        return f'{self._prefix}{idle}],"usage":{usage}}}\n\n'.encode()

    def _chunk(self, update: Update) -> bytes:
        self._usage.usage.count(update)
        if isinstance(update, Delta) and update.part.is_empty:
            return b""
        shape = self._shape
        choices = shape.delta(update) if isinstance(update, Delta) else shape.end(update)
        besides = [shape.beside(update), *[""] * len(choices)]
        return "".join(
            f"{self._prefix}{choice}]{beside}{self._usage.field()}}}\n\n"
            for choice, beside in zip(choices, besides, strict=False)
        ).encode()

    def _tail(self) -> bytes:
        if not self._usage.is_last:
            return _DONE
        usage = json.dumps(self._usage.usage.as_dict())
        return f'{self._prefix}],"usage":{usage}}}\n\n'.encode() + _DONE


def _event(body: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(body)}\n\n".encode()


def _start(headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": 200, "headers": headers}


def _part(body: bytes, *, is_last: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": not is_last}
