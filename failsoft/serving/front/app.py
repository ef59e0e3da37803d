"""The front's ASGI application: its routes behind the guard, and who may take which."""

import hmac
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from failsoft.engine.http import health
from failsoft.engine.http.base_app import base_app
from failsoft.engine.http.guard import Admit, Guard
from failsoft.engine.http.request_id import RequestIds
from failsoft.errors import FallbackError
from failsoft.serving.front import pages
from failsoft.serving.front.answers import AnswerRoute
from failsoft.serving.front.faults import fault_of_error
from failsoft.serving.front.front import Front

STATUS_PATH = "/internal/status"
METRICS_PATH = "/metrics"

_PAGES = [
    Route("/v1/models", pages.models),
    Route("/v1/models/{model_id:path}", pages.model),
    Route("/health", health.live),
    Route("/health/live", health.live),
    Route("/health/ready", pages.ready),
    Route(METRICS_PATH, pages.metrics),
    Route(STATUS_PATH, pages.status),
]


class _Entrance:
    """Sends calls to their routes, and all else to the pages.

    A call passes no framework on its way: each layer would cost every delta of a stream.
    """

    def __init__(self, calls: Mapping[str, ASGIApp], pages: ASGIApp) -> None:
        self._calls = calls
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._calls.get(scope["path"]) if scope.get("method") == "POST" else None
        await (app or self._pages)(scope, receive, send)


def build_app(front: Front) -> ASGIApp:
    """Return the application over *front*."""
    calls: dict[str, ASGIApp] = {
        "/v1/chat/completions": AnswerRoute(front, "chat"),
        "/v1/completions": AnswerRoute(front, "completion"),
    }
    # Among the pages they answer other methods than POST, by 405.
    routes = [Route(path, app, methods=["POST"]) for path, app in calls.items()]
    app = base_app([*routes, *_PAGES], {FallbackError: _on_call_error})
    app.state.front = front
    return Guard(
        _Entrance(calls, RequestIds(app)),
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


async def _on_call_error(_request: Request, exc: Exception) -> Response:
    assert isinstance(exc, FallbackError)
    return fault_of_error(exc).response()
