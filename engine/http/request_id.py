"""An id on every reply, by which a caller and a log speak of the same request."""

from typing import Any
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-request-id"
_MAX_CHARS = 128


class RequestIds:
    """Stamps what an application sends, unless that names an id itself.

    Args:
        app: The application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        await self._app(scope, receive, stamping(scope, send))


def stamping(scope: Scope, send: Send) -> Send:
    """Return *send* for a reply that gets the caller's own id if it is sane, else a fresh one."""
    if scope["type"] != "http":
        return send
    request_id = _id_of(Headers(scope=scope).get(HEADER))

    async def send_stamped(message: Message) -> None:
        if message["type"] == "http.response.start":
            stamped: dict[str, Any] = {**message, "headers": list(message.get("headers", []))}
            MutableHeaders(raw=stamped["headers"]).setdefault(HEADER, request_id)
            message = stamped
        await send(message)

    return send_stamped


def _id_of(given: str | None) -> str:
    """Return the caller's id if it is short and printable ASCII, else a fresh one."""
    is_sane = given and len(given) <= _MAX_CHARS and given.isascii()
    return given if given and is_sane and given.isprintable() else uuid4().hex
