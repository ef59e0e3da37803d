"""The ASGI application: routes, and faults in OpenAI's shape whatever raises them."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from failsoft.engine.http import chat, completions, health, models
from failsoft.engine.http.errors import Fault, fault_of
from failsoft.engine.http.guard import Guard
from failsoft.engine.http.served import ServerState
from failsoft.errors import EngineError

_ROUTES = [
    Route("/v1/chat/completions", chat.create, methods=["POST"]),
    Route("/v1/completions", completions.create, methods=["POST"]),
    Route("/v1/models", models.list_all),
    Route("/v1/models/{model_id:path}", models.retrieve),
    Route("/health", health.live),
    Route("/health/live", health.live),
    Route("/health/ready", health.ready),
    Route("/metrics", health.metrics),
]


def build_app(state: ServerState) -> ASGIApp:
    """Return the application over *state*; who runs it opens ``state.mailbox`` on its loop."""
    app = Starlette(
        routes=_ROUTES,
        exception_handlers={
            EngineError: _on_engine_error,
            HTTPException: _on_http_error,
            ClientDisconnect: _on_disconnect,
            Exception: _on_bug,
        },
    )
    app.router.redirect_slashes = False  # a redirect would lose a POST's body
    app.state.server = state
    return Guard(app, config=state.config, count_refused=state.metrics.count_refused)


async def _on_engine_error(_request: Request, exc: Exception) -> Response:
    assert isinstance(exc, EngineError)
    return fault_of(exc).response()


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
