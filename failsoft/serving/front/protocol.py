"""uvicorn's HTTP protocol as what its routes need of their caller's connection.

ASGI cannot say "close after this reply" once the reply has begun, cannot drop a
connection whose peer reads nothing, and tells of a caller who left only to a task that
waits for it all along. Here a route finds its connection in the scope's extensions.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any, cast

from httptools import HttpParserUpgrade
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_NAME = "failsoft.connection"
_FINAL_HEADS = tuple(b"HTTP/1.1 %d" % kind for kind in (2, 3, 4, 5))


class _HeadJoiner:
    """A transport that sends a reply's head along with the first of its body.

    ASGI hands them over apart; a system call that wakes a peer is the dearest thing that a
    short call does, so it makes one of two.

    Args:
        transport: What it writes to, and is but for that.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""

    def write(self, data: bytes) -> None:
        """Write *data*, or keep it if it is a head."""
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(_FINAL_HEADS):
            self._head = data
            return
        self._transport.write(data)

    def flush(self) -> None:
        """Write the head of a reply that has no body."""
        if self._head:
            self.write(b"")

    def close(self) -> None:
        """Close once all is written."""
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class FrontProtocol(HttpToolsProtocol):
    """One connection of a caller's."""

    on_gone: Callable[[], None] | None = None
    """Called when the caller is gone; see `watch`."""
    _is_last = False
    """Whether the reply under way ends the connection."""
    _fed = b""
    _rest = b""
    """Of what was fed to the parser last: what it left."""
    _num_owed = 0
    """Bytes still to come of a body that the parser will not take; see `_decline`."""
    _is_deaf = False
    """Whether what comes is no request any more."""

    def watch(self, on_gone: Callable[[], None]) -> None:
        """Call *on_gone* when the caller leaves; for a route that has read the whole request.

        A long body holds the connection up while it is read. Held up it would stay, and its
        end unseen, for nobody asks uvicorn for more of a body that is whole.
        """
        self.on_gone = on_gone
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def unwatch(self) -> None:
        """The route is done."""
        self.on_gone = None

    def close_after(self) -> None:
        """Close it when the reply that is under way is out, whatever was asked behind it."""
        self._is_last = True

    def abort(self) -> None:
        """Close it now, whatever of the reply has not left yet."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Part of asyncio's interface."""
        self._joiner = _HeadJoiner(transport)
        super().connection_made(cast("asyncio.Transport", self._joiner))

    def data_received(self, data: bytes) -> None:
        """Part of asyncio's interface."""
        while data and not self._is_deaf:
            if self._num_owed:
                data = self._take_owed(data)
                continue
            self._fed, self._rest = data, b""
            super().data_received(data)
            data = self._rest

    def _unsupported_upgrade_warning(self) -> None:
        """Part of uvicorn's interface: the parser met an offer of another protocol."""
        offer = sys.exception()
        assert isinstance(offer, HttpParserUpgrade)
        self._rest = self._fed[offer.args[0] :]
        self._decline()

    def _decline(self) -> None:
        """Go on in HTTP/1.1, as whoever offers another protocol must expect (RFC 9110, 7.8).

        Java's own client offers HTTP/2 with each plain request. The parser holds all behind the
        head for the other protocol: the body would be lost, or read as the next request.
        """
        said = dict(self.headers)
        if b"transfer-encoding" in said:  # only a parser could tell where that ends
            self._is_deaf = self._is_last = True
            return
        self._num_owed = int(said.get(b"content-length", 0))
        if self._num_owed:
            self.cycle.more_body = True

    def _take_owed(self, data: bytes) -> bytes:
        """Take what *data* has of the body that is owed; return what follows it."""
        num_owed = self._num_owed
        body = data[:num_owed]
        self._num_owed -= len(body)
        self.on_body(body)
        if not self._num_owed:
            self.on_message_complete()
        return data[num_owed:]

    def on_response_complete(self) -> None:
        """Part of uvicorn's interface: a cycle's reply is all written."""
        self._joiner.flush()
        if self._is_last:
            self.transport.close()
        super().on_response_complete()

    def on_message_begin(self) -> None:
        """Part of the parser's interface."""
        super().on_message_begin()
        scope = cast("dict[str, Any]", self.scope)
        scope["extensions"] = {_NAME: self}

    def connection_lost(self, exc: Exception | None) -> None:
        """Part of asyncio's interface."""
        super().connection_lost(exc)
        if self.on_gone is not None:
            self.on_gone()


def connection_of(scope: Scope) -> FrontProtocol:
    """Return the connection that *scope*'s request came on."""
    connection: FrontProtocol = scope["extensions"][_NAME]
    return connection
