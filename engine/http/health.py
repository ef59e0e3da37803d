"""GET /health, /health/live and /health/ready; GET /metrics.

Live: the event loop answers. Ready: the engine makes tokens, or could; an HTTP
answer alone proves nothing of that.
"""

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from failsoft.records import EngineStats

if TYPE_CHECKING:
    from failsoft.engine.http.served import ServerState


_FAILING_AFTER_STEPS = 3
"""One failed step may be one bad request's doing; three in a row are the model's."""


async def live(request: Request) -> JSONResponse:  # noqa: ARG001 a route takes its request
    """Say that the process answers."""
    return JSONResponse({"status": "live"})


async def ready(request: Request) -> JSONResponse:
    """Say whether a request sent now would be served, and why not (503)."""
    state: ServerState = request.app.state.server
    reason = why_not_ready(
        state.engine.stats(),
        is_draining=state.is_draining,
        stuck_after_s=state.config.stuck_after_s,
    )
    if reason is None:
        return JSONResponse({"status": "ready"})
    return JSONResponse({"status": "not_ready", "reason": reason}, status_code=503)


async def metrics(request: Request) -> Response:
    """Return the Prometheus text exposition."""
    state: ServerState = request.app.state.server
    media_type = "text/plain; version=0.0.4; charset=utf-8"
    return Response(state.metrics.render(), media_type=media_type)


def why_not_ready(stats: EngineStats, *, is_draining: bool, stuck_after_s: float) -> str | None:
    """Return ``engine_dead``, ``draining``, ``stuck`` or ``failing``; None when all is well.

    Args:
        stats: The engine's snapshot.
        is_draining: Whether the server was told to stop, which the engine may not know yet.
        stuck_after_s: Seconds without a settled step, while work is there, that count as stuck.
    """
    if not stats.is_alive:
        return "engine_dead"
    if is_draining or stats.is_draining:
        return "draining"
    has_work = stats.num_running + stats.num_waiting > 0
    idle_s = stats.seconds_since_progress
    if has_work and idle_s is not None and idle_s > stuck_after_s:
        return "stuck"
    if stats.failed_steps_in_a_row >= _FAILING_AFTER_STEPS:
        return "failing"
    return None
