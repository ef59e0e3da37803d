"""What every ASGI application of ours is: routes, and faults in OpenAI's shape.

Knows nothing of engines or ladders.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from failsoft.engine.http.errors import Fault

Handler = Callable[[Request], Awaitable[Response | ASGIApp]]
"""Answers one route."""
OnError = Callable[[Request, Exception], Awaitable[Response]]


def base_app(routes: Sequence[Route], handlers: Mapping[type[Exception], OnError]) -> Starlette:
    """Return an application over *routes*; *handlers* answer for the errors of its part."""
    app = Starlette(
        routes=routes,
        exception_handlers={
            **handlers,
            HTTPException: _on_http_error,
            ClientDisconnect: _on_disconnect,
            Exception: _on_bug,
        },
    )
    app.router.redirect_slashes = False  # a redirect would lose a POST's body
    return app


async def _on_http_error(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    where = f"{request.method} {request.url.path}"
    code = {404: "not_found", 405: "method_not_allowed"}.get(exc.status_code)
    message = f"no route {where}" if exc.status_code == 404 else f"{where}: {exc.detail}"
    headers = dict(exc.headers) if exc.headers else None
    return Fault(exc.status_code, message, code, headers=headers).response()


async def _on_disconnect(_request: Request, _exc: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it


async def _on_bug(_request: Request, _exc: Exception) -> Response:
    """Answer for a bug; the traceback goes to the log when it is raised on."""
    message = "internal error; the server's log has the traceback"
    # uvicorn closes the connection after a bug; unsaid, a client would reuse it and fail.
    headers = {"connection": "close"}
    return Fault(500, message, "internal_error", headers=headers).response()
