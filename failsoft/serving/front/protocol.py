"""uvicorn's HTTP protocol as what its routes need of their caller's connection.

ASGI cannot say "close after this reply" once the reply has begun, cannot drop a
connection whose peer reads nothing, and tells of a caller who left only to a task that
waits for it all along. Here a route finds its connection in the scope's extensions.
"""

from collections.abc import Callable
from typing import Any, cast

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_NAME = "failsoft.connection"


class FrontProtocol(HttpToolsProtocol):
    """One connection of a caller's."""

    on_gone: Callable[[], None] | None = None
    """Called when the caller is gone; set by the route that answers, while it does."""

    def close_after(self) -> None:
        """Close it when the reply that is under way is out."""
        self.shutdown()

    def abort(self) -> None:
        """Close it now, whatever of the reply has not left yet."""
        self.transport.abort()

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
