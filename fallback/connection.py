"""One plain HTTP connection: a socket and, while one is under way, the exchange on it.

Knows nothing of URLs. Belongs to one event loop.
"""

import asyncio
import select
from collections.abc import Callable
from typing import cast

from failsoft.fallback.exchange import Exchange


class Connection(asyncio.BufferedProtocol):
    """A connection that carries one exchange at a time.

    Args:
        buffer: Where bytes arrive; shared by all connections of a loop, for each reads and
            parses in one go. So no read costs an allocation of asyncio's 256 KiB.
        on_free: Told when its exchange is over and it may carry another.
        on_lost: Told when it is gone.
    """

    def __init__(
        self,
        buffer: bytearray,
        *,
        on_free: Callable[["Connection"], None],
        on_lost: Callable[["Connection"], None],
    ) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._on_free = on_free
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._on_sent: Callable[[], None] | None = None
        self.expiry: asyncio.TimerHandle | None = None
        """Closes it when it idles for too long."""

    @property
    def is_usable(self) -> bool:
        """Whether it can carry an exchange."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing lies unread on it; one system call.

        On an idle connection that could only be its end, which the loop has not come to yet,
        or bytes that nobody asked for: neither may meet a request.
        """
        assert self._transport is not None
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    def begin(self, exchange: Exchange, request: bytes, on_sent: Callable[[], None]) -> None:
        """Send *request*; its reply goes to *exchange*.

        *on_sent* is called once the last byte is with the system: now, or when there is room.
        """
        if self._transport is None:  # lost since it was made
            exchange.on_lost(None)
            return
        self._exchange = exchange
        self._on_sent = on_sent
        self._transport.write(request)
        if self.is_usable and self._transport.get_write_buffer_size() == 0:
            self.resume_writing()

    def abort(self) -> None:
        """Close at once, and tell the peer so."""
        if self._transport is not None:
            self._transport.abort()

    # The exchange's side.

    def pause(self) -> None:
        """Read no more for now."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def release(self, *, is_reusable: bool) -> None:
        """The exchange is over."""
        # A reply may come before its request has left. What a server that did not wait for the
        # rest makes of it is its own affair: it may take it for the next request.
        was_sent = self._on_sent is None
        self._exchange = None
        self._on_sent = None
        if is_reusable and was_sent and self.is_usable:
            self.resume()
            self._on_free(self)
        else:
            self.abort()

    # The event loop's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of asyncio's interface."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=0)  # so that resume_writing means: all is sent

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 asyncio passes it
        """Part of asyncio's interface."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Part of asyncio's interface."""
        if self._exchange is None:
            self.abort()  # nobody asked: what comes now would be taken for the next reply
        else:
            self._exchange.feed(self._view[:nbytes])

    def eof_received(self) -> None:
        """Part of asyncio's interface: the transport closes itself."""

    def resume_writing(self) -> None:
        """Part of asyncio's interface."""
        if self._on_sent is not None:
            on_sent, self._on_sent = self._on_sent, None
            on_sent()

    def connection_lost(self, exc: Exception | None) -> None:
        """Part of asyncio's interface."""
        exchange, self._exchange = self._exchange, None
        self._transport = None
        if exchange is not None:
            exchange.on_lost(exc)
        self._on_lost(self)
