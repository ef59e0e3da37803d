"""The front's ASGI application: its routes behind the guard, and who may take which."""

import hmac

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from failsoft.engine.http import health
from failsoft.engine.http.base_app import base_app
from failsoft.engine.http.errors import fault_of
from failsoft.engine.http.guard import Admit, Guard
from failsoft.errors import EngineError, FallbackError
from failsoft.serving.front import pages
from failsoft.serving.front.answers import AnswerRoute
from failsoft.serving.front.faults import fault_of_call
from failsoft.serving.front.front import Front

STATUS_PATH = "/internal/status"
METRICS_PATH = "/metrics"

_ROUTES = [
    Route("/v1/chat/completions", AnswerRoute("chat"), methods=["POST"]),
    Route("/v1/completions", AnswerRoute("completion"), methods=["POST"]),
    Route("/v1/models", pages.models),
    Route("/v1/models/{model_id:path}", pages.model),
    Route("/health", health.live),
    Route("/health/live", health.live),
    Route("/health/ready", pages.ready),
    Route(METRICS_PATH, pages.metrics),
    Route(STATUS_PATH, pages.status),
]


def build_app(front: Front) -> ASGIApp:
    """Return the application over *front*."""
    app = base_app(_ROUTES, {EngineError: _on_engine_error, FallbackError: _on_call_error})
    app.state.front = front
    return Guard(
        app,
        hosts=(front.host, *front.config.allowed_hosts),
        admit=_admit(front),
        count_refused=front.metrics.count_refused,
    )


def _admit(front: Front) -> Admit:
    """Return who may ask: a caller by its key, our own processes by the front's token."""

    def admit(path: str, token: str) -> str | None:
        if path in (STATUS_PATH, METRICS_PATH):
            if hmac.compare_digest(token.encode(), front.token.encode()):
                return ""
            if path == STATUS_PATH:
                return None
        return front.keyring.name_of(token)

    return admit


async def _on_engine_error(request: Request, exc: Exception) -> Response:
    """Answer for a body that cannot be read: the engine and the front read it alike."""
    assert isinstance(exc, EngineError)
    fault = fault_of(exc)
    front: Front = request.app.state.front
    front.metrics.count_refused(fault.code or "refused")
    return fault.response()


async def _on_call_error(_request: Request, exc: Exception) -> Response:
    assert isinstance(exc, FallbackError)
    return fault_of_call(exc).response()
