"""One attempt: one request to one endpoint, read under its four clocks.

Knows nothing of ladders, budgets or breakers. Every fault comes out as a
RungFailedError. The endpoint is always asked to stream, also for a caller who
wants a whole reply: only so do the first-token and gap clocks see anything.
A clock is reset by a token alone: by content, or by a count of output tokens that has grown
while their text is held (our engine holds a tool call until it is whole). Comments, role
chunks and counts that stand still are no tokens. Units: seconds.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from failsoft.errors import RungFailedError
from failsoft.fallback.assembly import Assembly
from failsoft.fallback.choice import chunks_of
from failsoft.fallback.chunk import Chunk, is_idle, parse_chunk
from failsoft.fallback.deadline import Clocks
from failsoft.fallback.failure import Failure, bad_reply, clock_failure, cut, status_failure
from failsoft.fallback.outside_json import parse_json
from failsoft.fallback.retry_after import retry_after_s, should_retry
from failsoft.fallback.sse import SSEParser
from failsoft.fallback.surroundings import Surroundings
from failsoft.fallback.token_clock import TokenClock
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
        on_token: Called for each arrival of tokens.
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
        self._tokens = TokenClock(clocks, surroundings.clock)
        self.started_s = self._tokens.started_s
        self._has_content = False
        self._num_counted = 0
        """Output tokens, as counted by the endpoint so far."""
        self._reply: HTTPReply | None = None
        self._parser = SSEParser()
        self._pending: Failure | None = None
        self._num_bytes = 0
        self._is_stream = False
        self.is_ended = False
        self.was_sent = False
        """Whether the whole request left; the endpoint may then have read it."""

    @property
    def status(self) -> int | None:
        """HTTP status; None when no reply began."""
        return self._reply.status if self._reply else None

    @property
    def ttft_s(self) -> float | None:
        """Seconds to the first token; None before it."""
        return self._tokens.ttft_s

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

    async def open(self, *, on_first_token: Callable[[], None]) -> list[Chunk]:
        """Read up to the first content and return every chunk so far, that one included.

        Args:
            on_first_token: Called once, when a token came; its text may be held for long.

        Raises:
            RungFailedError: It broke, or ended as no reply, before any content.
        """
        held: list[Chunk] = []
        while not self._has_content and not self.is_ended:
            had_token = self._tokens.has_token
            held += await self.read()
            if self._tokens.has_token and not had_token:
                on_first_token()
            if not self._has_content and (
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
        asked_s = self._tokens.ask()
        while (piece := await self._next_piece(asked_s)) is not None:
            self._num_bytes += len(piece)
            events = self._parser.feed(piece)
            if self._parser.is_overlong:
                self._fail(bad_reply("an event without end"))
            if events:
                return await self._take(events)
            self._tokens.is_idle_talk = True
        return self._end()

    async def _next_piece(self, asked_s: float) -> bytes | None:
        """Return the next bytes; None at the end, or when a finished reply has no end."""
        assert self._reply
        left_s = self._left_s(asked_s)
        try:
            if self._tokens.is_idle_talk and not left_s:
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
        """Return how long the next bytes may take from now on."""
        limit_s = asked_s + TAIL_S if self.assembly.is_finished else self._tokens.due_s
        return max(0.0, min(limit_s, self._clocks.until_s) - self._clock())

    async def _take(self, events: list[bytes]) -> list[Chunk]:
        chunks: list[Chunk] = []
        has_content = has_token = False
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
            has_grown = self._has_grown(chunk)
            has_content = has_content or is_content
            has_token = has_token or is_content or has_grown
            if has_grown and is_idle(chunk):
                self._num_bytes = 0  # a sign for the clocks; the caller has no use for it
            else:
                chunks.append(chunk)
        if has_token:
            self._mark_token(is_content=has_content)
        else:
            self._tokens.mark_idle()
        return chunks

    def _has_grown(self, chunk: Chunk) -> bool:
        """Return whether *chunk* counts more tokens of a reply under way than any before it."""
        if not chunk.get("usage") or self.assembly.is_finished:
            return False
        before, self._num_counted = self._num_counted, self.assembly.num_reported_tokens or 0
        return self._num_counted > before

    def _end_after(self, chunks: list[Chunk], failure: Failure | None) -> None:
        """End well, or by *failure*: now, or once the caller has *chunks* of a text it knows."""
        if failure is None:
            self.is_ended = True
        elif not self._has_content or not chunks:
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

    def _mark_token(self, *, is_content: bool) -> None:
        self._has_content = self._has_content or is_content
        self._tokens.mark_token()
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
        self._mark_token(is_content=True)
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
            has_token=self._tokens.has_token,
        )

    def _fail(self, failure: Failure) -> NoReturn:
        self.is_ended = True
        raise RungFailedError(rung=self._rung, cause=failure)

    async def aclose(self) -> None:
        """Close; an unread rest closes the connection, which tells the endpoint to stop."""
        if self._reply is not None:
            await self._reply.aclose()
