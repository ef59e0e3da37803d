"""GET /version, GET /openapi.json and GET /docs: what this server is and takes."""

from importlib.metadata import version as version_of

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse

from failsoft.engine.http.docs_page import POLICY, render

VERSION = version_of("failsoft")
"""From the installed package: the public face would bring the engine's imports along."""


async def version(request: Request) -> JSONResponse:  # noqa: ARG001 a route takes its request
    """Say which failsoft this is."""
    return JSONResponse({"version": VERSION})


async def document(request: Request) -> JSONResponse:
    """Return the OpenAPI document."""
    return JSONResponse(request.app.state.document)


async def page(request: Request) -> HTMLResponse:
    """Return the document as a page, which loads nothing and runs nothing."""
    headers = {"content-security-policy": POLICY}
    return HTMLResponse(render(request.app.state.document), headers=headers)
