"""uvicorn's HTTP protocol with a handle on its connection.

ASGI cannot say "close after this reply" once the reply has begun, and cannot drop a
connection whose peer reads nothing. Both are in the scope's extensions here.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_NAME = "failsoft.connection"


class ConnectionHandle(NamedTuple):
    """What a route may do to the connection it answers on."""

    close_after: Callable[[], None]
    """Close it when the reply that is under way is out."""
    abort: Callable[[], None]
    """Close it now, whatever of the reply has not left yet."""


class FrontProtocol(HttpToolsProtocol):
    """One connection of a caller's."""

    def on_message_begin(self) -> None:
        """Part of the parser's interface."""
        super().on_message_begin()
        scope = cast("dict[str, Any]", self.scope)
        scope["extensions"] = {_NAME: ConnectionHandle(self.shutdown, self._abort)}

    def _abort(self) -> None:
        self.transport.abort()


def connection_of(scope: Scope) -> ConnectionHandle:
    """Return the handle of the connection that *scope*'s request came on."""
    handle: ConnectionHandle = scope["extensions"][_NAME]
    return handle
