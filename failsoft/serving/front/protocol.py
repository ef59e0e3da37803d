"""uvicorn's HTTP protocol as what its routes need of their caller's connection.

ASGI cannot say "close after this reply" once the reply has begun, cannot drop a
connection whose peer reads nothing, and tells of a caller who left only to a task that
waits for it all along. Here a route finds its connection in the scope's extensions.
"""

import asyncio
from collections.abc import Callable
from typing import Any, cast

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
