"""One request's reply on a direct connection: parsed by llhttp, read piece by piece.

Knows nothing of sockets but how to hold one up and let it go. HTTP/1.1 (RFC 9112):
interim replies are passed over, a body ends by its chunks, its length or, with
neither, by the connection. Units: seconds, bytes.
"""

import asyncio
import zlib
from typing import TYPE_CHECKING, Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from failsoft.call_records import AttemptOutcome as Outcome
from failsoft.errors import RungFailedError
from failsoft.fallback.failure import Failure, bad_reply, cut, transport_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_HEAD_BYTES = 100 * 1024
"""A reply head longer than this is none (h11's limit)."""
MAX_HELD_BYTES = 256 * 1024
"""Unread body past which the peer is held up."""
MAX_INFLATED_BYTES = 8 * 1024**2
"""A piece that unpacks to more is a bomb: pieces come in 64 KiB at most."""
_GZIP = 16 + zlib.MAX_WBITS
_WINDOWS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": zlib.MAX_WBITS}


class Line(Protocol):
    """The connection, as its exchange needs it."""

    def pause(self) -> None:
        """Read no more for now."""

    def resume(self) -> None:
        """Read on."""

    def release(self, *, is_reusable: bool) -> None:
        """The exchange is over."""


class Exchange:
    """A reply on its way; see `failsoft.fallback.transport.HTTPReply`.

    Args:
        line: Its connection.
        rung: The endpoint's name, for errors.
        connect_s: Seconds the connection took; None when it was open before.
    """

    def __init__(self, line: Line, *, rung: str, connect_s: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._line = line
        self._rung = rung
        self._parser = HttpResponseParser(self)
        self._head: asyncio.Future[None] = self._loop.create_future()
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._until_s = 0.0
        self._held: list[bytes] = []
        self._num_held = 0
        self._num_head_bytes = 0
        self._is_held_up = False
        self._has_head = False
        self._is_complete = False
        self._is_reusable = False
        self._is_released = False
        self._failure: Failure | None = None
        self._decode: Callable[[bytes, int], bytes] | None = None
        self._fields: dict[str, str] = {}
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.connect_s = connect_s

    # The reader's side.

    async def head(self) -> None:
        """Wait for the reply's head.

        Raises:
            RungFailedError: None came.
        """
        await self._head
        if self._failure is not None and not self._has_head:
            raise RungFailedError(rung=self._rung, cause=self._failure)

    async def piece(self, timeout_s: float) -> bytes | None:
        """See `failsoft.fallback.transport.HTTPReply.piece`."""
        while not self._held:
            if self._failure is not None:
                raise RungFailedError(rung=self._rung, cause=self._failure)
            if self._is_complete:
                return None
            self._arm(self._loop.time() + timeout_s)
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        held, self._held, self._num_held = self._held, [], 0
        if self._is_held_up:
            self._is_held_up = False
            self._line.resume()
        return held[0] if len(held) == 1 else b"".join(held)

    async def aclose(self) -> None:
        """See `failsoft.fallback.transport.HTTPReply.aclose`."""
        if self._is_released:
            return
        self._is_released = True
        if self._timer is not None:
            self._timer.cancel()
        is_whole = self._is_complete and self._failure is None
        self._line.release(is_reusable=is_whole and self._is_reusable)
        if not is_whole and self._failure is None:
            self._fail(cut("the reply was closed"))  # another task may wait for a piece

    def _arm(self, until_s: float) -> None:
        """Set the clock; a timer that runs already goes on and looks again when it ends.

        So a stream costs one timer for each time-out's length, and not one for each piece.
        """
        self._until_s = until_s
        if self._timer is not None and self._timer.when() <= until_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(until_s, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self._loop.time() < self._until_s:
            self._arm(self._until_s)
        else:
            self._waiter.set_exception(TimeoutError())

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # The connection's side.

    def feed(self, data: memoryview) -> None:
        """Take in what came."""
        if self._failure is not None:
            return
        if not self._has_head:
            self._num_head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self._on_garbage()
        if not self._has_head and self._num_head_bytes > MAX_HEAD_BYTES:
            self._fail(bad_reply("a reply head without end"))

    def on_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        if self._is_complete or self._failure is not None:
            return
        if not self._has_head:
            reset = transport_failure(Outcome.RESET, "the connection closed before the reply")
            self._fail(reset)
        elif exc is None and self._ends_with_connection:
            self.on_message_complete()
        else:
            self._fail(cut("the connection closed inside the reply"))

    @property
    def _ends_with_connection(self) -> bool:
        coding = self.headers.get("transfer-encoding", "").rpartition(",")[2].strip().lower()
        return "content-length" not in self.headers and coding != "chunked"

    def _on_garbage(self) -> None:
        if self._is_complete:
            self._is_reusable = False  # the connection is spoilt, the reply is not
        elif not self._has_head:
            self._fail(bad_reply("not an HTTP reply"))
        else:
            self._fail(cut("the reply's body is not HTTP"))

    def _fail(self, failure: Failure) -> None:
        self._failure = failure
        if not self._head.done():
            self._head.set_result(None)
        self._wake()

    # The parser's side.

    def on_message_begin(self) -> None:
        """Part of the parser's interface."""
        if self._is_complete:
            raise ValueError("a second reply to one request")
        self._fields = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        """Part of the parser's interface."""
        if self._has_head:
            return  # a trailer: it changes nothing that was acted upon
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        before = self._fields.get(key)
        self._fields[key] = text if before is None else f"{before}, {text}"

    def on_headers_complete(self) -> None:
        """Part of the parser's interface."""
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            return  # an interim reply: the next one counts
        self._has_head = True
        self.status, self.headers = status, self._fields
        self._is_reusable = self._parser.should_keep_alive()
        coding = self.headers.get("content-encoding", "identity").strip().lower()
        if coding in _WINDOWS:
            self._decode = zlib.decompressobj(_WINDOWS[coding]).decompress
        elif coding not in ("identity", ""):
            self._failure = bad_reply("a body that does not decode")
        if not self._head.done():
            self._head.set_result(None)

    def on_body(self, piece: bytes) -> None:
        """Part of the parser's interface."""
        if self._decode is not None:
            piece = self._decode_piece(piece)
        if self._failure is not None:
            return
        self._held.append(piece)
        self._num_held += len(piece)
        if self._num_held > MAX_HELD_BYTES and not self._is_held_up:
            self._is_held_up = True
            self._line.pause()
        self._wake()

    def _decode_piece(self, piece: bytes) -> bytes:
        assert self._decode is not None
        try:
            plain = self._decode(piece, MAX_INFLATED_BYTES)
            if len(plain) == MAX_INFLATED_BYTES:
                self._fail(bad_reply("a body that inflates without end"))
                return b""
        except zlib.error:
            self._fail(bad_reply("a body that does not decode"))
            return b""
        return plain

    def on_message_complete(self) -> None:
        """Part of the parser's interface."""
        if not self._has_head:
            return  # of an interim reply
        self._is_complete = True
        self._wake()
