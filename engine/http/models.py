"""GET /v1/models and GET /v1/models/{id}: what is served here."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from failsoft.engine.http.served import ServedModel, ServerState
from failsoft.errors import UnknownModelError


async def list_all(request: Request) -> JSONResponse:
    """List the one served version."""
    state: ServerState = request.app.state.server
    return JSONResponse({"object": "list", "data": [_describe(state.served)]})


async def retrieve(request: Request) -> JSONResponse:
    """Describe the served version.

    Raises:
        UnknownModelError: Another one is asked for.
    """
    served = request.app.state.server.served
    asked = request.path_params["model_id"]
    if asked != served.name:
        raise UnknownModelError(model=asked, served=served.name)
    return JSONResponse(_describe(served))


def _describe(served: ServedModel) -> dict[str, Any]:
    return {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "failsoft",
        "max_model_len": served.max_model_len,
        "version_digest": served.version_digest,
    }
