"""The routes beside the calls: models, health, metrics, and the status for our processes."""

from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from failsoft.config.settings import CACHE_RUNG
from failsoft.errors import UnknownLadderError
from failsoft.fallback.cached_rung import CachedRung
from failsoft.fallback.ladder import Ladder, Rung
from failsoft.serving.front.front import Front
from failsoft.serving.front.status import front_status, why_not_ready


async def models(request: Request) -> JSONResponse:
    """List the ladders: what ``model`` may name, and what each resolves to now."""
    front = _front(request)
    await front.client.learn_pins()
    data = [_describe(front, name, ladder) for name, ladder in front.ladders.items()]
    return JSONResponse({"object": "list", "data": data})


async def model(request: Request) -> JSONResponse:
    """Describe one ladder.

    Raises:
        UnknownLadderError: There is none of that name.
    """
    front = _front(request)
    name = request.path_params["model_id"]
    ladder = front.ladders.get(name)
    if ladder is None:
        raise UnknownLadderError(name, known=tuple(front.ladders), param="model")
    await front.client.learn_pins()
    return JSONResponse(_describe(front, name, ladder))


async def ready(request: Request) -> JSONResponse:
    """Say whether a model could answer a call that came now, and why not (503)."""
    reasons = why_not_ready(_front(request))
    if not reasons:
        return JSONResponse({"status": "ready"})
    return JSONResponse({"status": "not_ready", "reasons": reasons}, status_code=503)


async def metrics(request: Request) -> Response:
    """Return the Prometheus text exposition."""
    await _front(request).client.learn_pins()
    media_type = "text/plain; version=0.0.4; charset=utf-8"
    return Response(_front(request).metrics.render(), media_type=media_type)


async def status(request: Request) -> JSONResponse:
    """Return `failsoft.front_status.FrontStatus`."""
    await _front(request).client.learn_pins()
    return JSONResponse(asdict(front_status(_front(request))))


def _front(request: Request) -> Front:
    front: Front = request.app.state.front
    return front


def _describe(front: Front, name: str, ladder: Ladder) -> dict[str, Any]:
    """Return a ladder in OpenAI's shape; with its context if every rung's is known.

    The smallest one counts, for any rung may answer.
    """
    described: dict[str, Any] = {
        "id": name,
        "object": "model",
        "created": front.settings_read_at_ms // 1000,
        "owned_by": "failsoft",
        "rungs": list(ladder.config.rungs),
        "resolves_to": [_resolve(rung) for rung in ladder.rungs],
    }
    contexts = [rung.endpoint.context_tokens for rung in ladder.models]
    known = [tokens for tokens in contexts if tokens is not None]
    if known and len(known) == len(contexts):
        described["max_model_len"] = min(known)
    return described


def _resolve(rung: Rung) -> dict[str, Any]:
    """Return what a call that reaches *rung* now is answered by, as far as that is known."""
    if isinstance(rung, CachedRung):
        names = {"endpoint": CACHE_RUNG, "slot": None, "version": None, "version_digest": None}
        return {**names, "can_be_asked": True}
    endpoint = rung.endpoint
    return {
        "endpoint": endpoint.name,
        "slot": endpoint.config.pin,
        "version": endpoint.version_name,
        "version_digest": endpoint.version().digest,
        "can_be_asked": not isinstance(endpoint.locate(), str),
    }
