"""One attempt: one request to one endpoint, read under its four clocks.

Knows nothing of ladders, budgets or breakers. Every fault comes out as a
RungFailedError. The endpoint is always asked to stream, also for a caller who
wants a whole reply: only so do the first-token and gap clocks see anything.
Comments, role chunks and usage chunks are no tokens and reset no clock. Units: seconds.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from failsoft.errors import RungFailedError
from failsoft.fallback.assembly import Assembly
from failsoft.fallback.choice import chunks_of
from failsoft.fallback.chunk import Chunk, parse_chunk
from failsoft.fallback.deadline import Clocks
from failsoft.fallback.failure import Failure, bad_reply, clock_failure, cut, status_failure
from failsoft.fallback.outside_json import parse_json
from failsoft.fallback.retry_after import retry_after_s, should_retry
from failsoft.fallback.sse import SSEParser
from failsoft.fallback.surroundings import Surroundings
from failsoft.fallback.transport import HTTPReply, Transport

MAX_HELD_CHUNKS, MAX_HELD_BYTES = 64, 256 * 1024
"""Before the first content: an endpoint that says more without saying anything is broken."""
MAX_ERROR_BYTES = 64 * 1024
MAX_BODY_BYTES = 32 * 1024**2
TAIL_S = 1.0
"""After the last finish reason: how long to wait for the usage chunk and the end; and after
an error's status, for its body."""
END_S = 0.02
"""After ``[DONE]``: how long to wait for the end of the body, which keeps the connection."""


class Attempt:
    """One request under way.

    Args:
        rung: The endpoint's name, for errors.
        assembly: Takes the reply in.
        clocks: What it may take.
        transport: Sends it.
        on_token: Called for each arrival of content.
        surroundings: Clocks.
    """

    def __init__(
        self,
        *,
        rung: str,
        assembly: Assembly,
        clocks: Clocks,
        transport: Transport,
        on_token: Callable[[], None],
        surroundings: Surroundings,
    ) -> None:
        self._rung = rung
        self.assembly = assembly
        self._clocks = clocks
        self._transport = transport
        self._on_token = on_token
        self._clock = surroundings.clock
        self._wall = surroundings.wall
        self.started_s = self._clock()
        self._content_s: float | None = None
        """When content last came, the time that the caller took since then not counted."""
        self._handed_s = self.started_s
        self._is_idle_talk = False
        """Whether something came since the last content, and none of it was content."""
        self._reply: HTTPReply | None = None
        self._parser = SSEParser()
        self._pending: Failure | None = None
        self._num_bytes = 0
        self._is_stream = False
        self.is_ended = False
        self.was_sent = False
        """Whether the whole request left; the endpoint may then have read it."""
        self.ttft_s: float | None = None
        """Seconds to the first content; None before it."""

    @property
    def status(self) -> int | None:
        """HTTP status; None when no reply began."""
        return self._reply.status if self._reply else None

    @property
    def connect_s(self) -> float | None:
        """Seconds the connection took; None when an open one was used again."""
        return self._reply.connect_s if self._reply else None

    @property
    def headers(self) -> Mapping[str, str]:
        """The reply's headers; none when no reply began."""
        return self._reply.headers if self._reply else {}

    async def send(self, url: str, *, headers: list[tuple[str, str]], content: bytes) -> None:
        """Send the request; return when a reply that can be read has begun.

        Raises:
            RungFailedError: It could not be sent, or what came is no reply.
        """
        try:
            async with asyncio.timeout(self._left_s(self.started_s)):
                reply = await self._transport.send(
                    url,
                    headers=headers,
                    content=content,
                    connect_s=max(self._clocks.connect_s, 0.001),
                    rung=self._rung,
                    on_sent=self._on_sent,
                )
                self._reply = reply
                if not 200 <= reply.status < 300:
                    self._fail(await self._status_failure(reply))
        except TimeoutError:
            self._fail(self._clock_failure())
        kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
        if reply.status != 200:
            self._fail(bad_reply(f"HTTP {reply.status} where 200 was due"))
        if kind not in ("text/event-stream", "application/json"):
            self._fail(bad_reply("neither an event stream nor JSON"))
        self._is_stream = kind == "text/event-stream"

    def _on_sent(self) -> None:
        self.was_sent = True

    async def open(self) -> list[Chunk]:
        """Read up to the first content and return every chunk so far, that one included.

        Raises:
            RungFailedError: It broke, or ended as no reply, before any content.
        """
        held: list[Chunk] = []
        while self._content_s is None and not self.is_ended:
            held += await self.read()
            if self._content_s is None and (
                len(held) > MAX_HELD_CHUNKS or self._num_bytes > MAX_HELD_BYTES
            ):
                self._fail(bad_reply("too much before the first token"))
        return held

    async def read(self) -> list[Chunk]:
        """Return the next chunks; empty when what came was none; sets *is_ended* at the end.

        Raises:
            RungFailedError: It broke, or ended as no whole reply.
        """
        if not self._is_stream:
            return await self._read_whole()
        if self._pending is not None:
            self._fail(self._pending)
        asked_s = self._clock()
        if self._content_s is not None:
            self._content_s += asked_s - self._handed_s
        while (piece := await self._next_piece(asked_s)) is not None:
            self._num_bytes += len(piece)
            events = self._parser.feed(piece)
            if self._parser.is_overlong:
                self._fail(bad_reply("an event without end"))
            if events:
                return await self._take(events)
            self._is_idle_talk = True
        return self._end()

    async def _next_piece(self, asked_s: float) -> bytes | None:
        """Return the next bytes; None at the end, or when a finished reply has no end."""
        assert self._reply
        left_s = self._left_s(asked_s)
        try:
            if self._is_idle_talk and not left_s:
                raise TimeoutError  # bytes that come fast enough would outrun every clock
            return await self._reply.piece(left_s)
        except TimeoutError:
            if self.assembly.is_finished:
                return None
            self._fail(self._clock_failure())
        except RungFailedError:
            if self.assembly.is_finished:
                return None  # the reply is whole, whatever became of its tail
            raise

    def _left_s(self, asked_s: float) -> float:
        """Return how long the next bytes may take from now on.

        A caller who reads slowly must not be taken for an endpoint that is silent, so its own
        time is no part of a gap.
        """
        now_s = self._clock()
        if self.assembly.is_finished:
            limit_s = asked_s + TAIL_S
        elif self._content_s is None:
            limit_s = self.started_s + self._clocks.first_token_s
        else:
            limit_s = self._content_s + self._clocks.gap_s
        return max(0.0, min(limit_s, self._clocks.until_s) - now_s)

    async def _take(self, events: list[bytes]) -> list[Chunk]:
        chunks: list[Chunk] = []
        has_content = False
        for data in events:
            if data.startswith(b"[DONE]"):
                await self._drain()
                self._end_after(chunks, self.assembly.judge_end())
                break
            is_content, failure, chunk = self._add(data)
            if failure is not None:
                # Once it is finished the reply is whole, whatever became of its tail.
                is_finished = self.assembly.is_finished
                self._end_after(chunks, self.assembly.judge_end() if is_finished else failure)
                break
            has_content = has_content or is_content
            chunks.append(chunk)
        if has_content:
            self._mark_content()
        else:
            self._handed_s, self._is_idle_talk = self._clock(), True
        return chunks

    def _end_after(self, chunks: list[Chunk], failure: Failure | None) -> None:
        """End well, or by *failure*: now, or once the caller has *chunks* of a text it knows."""
        if failure is None:
            self.is_ended = True
        elif self._content_s is None or not chunks:
            self._fail(failure)
        else:
            self._pending = failure

    def _add(self, data: bytes) -> tuple[bool, Failure | None, Chunk]:
        try:
            chunk = parse_chunk(data)
        except ValueError:
            return False, bad_reply("an event that is not JSON"), {}
        is_content, failure = self.assembly.add(chunk)
        return is_content, failure, chunk if isinstance(chunk, dict) else {}

    def _mark_content(self) -> None:
        self._content_s = self._handed_s = self._clock()
        self._is_idle_talk = False
        if self.ttft_s is None:
            self.ttft_s = self._content_s - self.started_s
        self._on_token()

    async def _drain(self) -> None:
        """Take the end of the body in, so that the connection can be used again."""
        assert self._reply
        until_s = self._clock() + END_S
        with contextlib.suppress(TimeoutError, RungFailedError):
            while await self._reply.piece(max(0.0, until_s - self._clock())) is not None:
                if self._clock() >= until_s:
                    return  # more than an end comes

    def _end(self) -> list[Chunk]:
        if self._parser.has_rest and not self.assembly.is_finished:
            self._fail(cut("the stream ended inside an event"))
        self._judge()
        return []

    def _judge(self) -> None:
        failure = self.assembly.judge_end()
        if failure is not None:
            self._fail(failure)
        self.is_ended = True

    async def _read_whole(self) -> list[Chunk]:
        raw = await self._body(MAX_BODY_BYTES)
        if len(raw) > MAX_BODY_BYTES:
            self._fail(bad_reply("a body without end"))
        try:
            body = parse_json(raw)
        except ValueError:
            self._fail(bad_reply("a body that is not JSON"))
        failure = self.assembly.add_completion(body)
        if failure is not None:
            self._fail(failure)
        self._judge()
        self._mark_content()
        return list(chunks_of(self.assembly.completion()))

    async def _body(self, max_bytes: int) -> bytes:
        """Return the body, or a little more than *max_bytes* of it."""
        raw = bytearray()
        while len(raw) <= max_bytes:
            piece = await self._next_piece(self.started_s)
            if piece is None:
                break
            raw += piece
        return bytes(raw)

    async def _status_failure(self, reply: HTTPReply) -> Failure:
        body: Any = None
        # The status alone says enough.
        with contextlib.suppress(ValueError, RungFailedError, TimeoutError):
            async with asyncio.timeout(TAIL_S):
                body = parse_json(await self._body(MAX_ERROR_BYTES))
        return status_failure(
            reply.status,
            body=body,
            retry_after_s=retry_after_s(reply.headers, now_s=self._wall()),
            should_retry=should_retry(reply.headers),
        )

    def _clock_failure(self) -> Failure:
        """Say which clock ran out."""
        now_s = self._clock()
        return clock_failure(
            now_s - self.started_s,
            is_over=now_s >= self._clocks.until_s - 0.001,
            is_deadline=self._clocks.is_deadline,
            has_content=self._content_s is not None,
        )

    def _fail(self, failure: Failure) -> NoReturn:
        self.is_ended = True
        raise RungFailedError(rung=self._rung, cause=failure)

    async def aclose(self) -> None:
        """Close; an unread rest closes the connection, which tells the endpoint to stop."""
        if self._reply is not None:
            await self._reply.aclose()
