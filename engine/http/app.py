"""The engine's ASGI application: its routes behind the guard."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from failsoft.engine.http import chat, completions, health, models
from failsoft.engine.http.base_app import base_app
from failsoft.engine.http.errors import fault_of
from failsoft.engine.http.guard import Guard, admit_key
from failsoft.engine.http.request_id import RequestIds
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
    app = base_app(_ROUTES, {EngineError: _on_engine_error})
    app.state.server = state
    return Guard(
        RequestIds(app),
        hosts=(state.config.host, *state.config.allowed_hosts),
        admit=admit_key(state.config.api_key),
        count_refused=state.metrics.count_refused,
    )


async def _on_engine_error(_request: Request, exc: Exception) -> Response:
    assert isinstance(exc, EngineError)
    return fault_of(exc).response()
