"""The engine's ASGI application: its routes behind the guard."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from failsoft.engine.http.base_app import base_app
from failsoft.engine.http.errors import fault_of
from failsoft.engine.http.guard import Guard, admit_key
from failsoft.engine.http.openapi import build_document
from failsoft.engine.http.operations import OPERATIONS
from failsoft.engine.http.request_id import RequestIds
from failsoft.engine.http.served import ServerState
from failsoft.errors import EngineError


def build_app(state: ServerState) -> ASGIApp:
    """Return the application over *state*; who runs it opens ``state.mailbox`` on its loop."""
    routes = [operation.route for operation in OPERATIONS]
    app = base_app(routes, {EngineError: _on_engine_error})
    app.state.server = state
    app.state.document = build_document(state, OPERATIONS)
    return Guard(
        RequestIds(app),
        hosts=(state.config.host, *state.config.allowed_hosts),
        admit=admit_key(state.config.api_key),
        count_refused=state.metrics.count_refused,
    )


async def _on_engine_error(_request: Request, exc: Exception) -> Response:
    assert isinstance(exc, EngineError)
    return fault_of(exc).response()
