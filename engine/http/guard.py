"""Who may ask: a pure ASGI layer before every route.

A server on loopback is reachable by any page the user's browser opens: through
DNS rebinding (an odd ``Host``), and through requests from another origin. Both
are refused, so is a body that a form could send without a preflight. Knows nothing of
what stands behind it: an engine and the front use the same one.
"""

import hmac
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from failsoft.engine.http.errors import Fault
from failsoft.engine.http.request_id import stamping

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_OPEN_PATHS = ("/health", "/health/live", "/health/ready")
"""Routes that a probe reaches without a key; all others need it."""
_CHECKED = frozenset(
    {
        b"host",
        b"origin",
        b"authorization",
        b"content-type",
        b"content-length",
        b"transfer-encoding",
    }
)

Admit = Callable[[str, str], str | None]
"""(path, bearer token or nothing) to the name of who asks; None lets nobody in."""


def admit_key(key: str | None) -> Admit:
    """Return who may ask where one key opens everything; None asks for none."""

    def admit(_path: str, token: str) -> str | None:
        is_let_in = key is None or hmac.compare_digest(token.encode(), key.encode())
        return "" if is_let_in else None

    return admit


def caller_of(scope: Scope) -> str:
    """Return the name that the guard let a request in under."""
    name: str = scope["failsoft.caller"]
    return name


class Guard:
    """Checks Host, Origin, key and content type.

    Args:
        app: What stands behind it.
        hosts: ``Host`` names to answer to beside the loopback names, without port.
        admit: Says who asks; not asked for ``/health``.
        count_refused: Told the reason, a word of a fixed set, of each refusal.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Iterable[str],
        admit: Admit,
        count_refused: Callable[[str], None],
    ) -> None:
        self._app = app
        self._admit = admit
        self._count_refused = count_refused
        names = (*_LOOPBACK_NAMES, *hosts)
        self._hosts = frozenset(name.lower().strip("[]") for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refusal, or pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        fault = self._check(scope)
        if fault is None:
            await self._app(scope, receive, send)
            return
        self._count_refused(fault.code or "refused")
        await fault.response()(scope, receive, stamping(scope, send))

    def _check(self, scope: Scope) -> Fault | None:
        headers, origins = _checked_headers(scope)
        host = headers.get("host", "")
        if _host_name(host) not in self._hosts:
            return Fault(
                400,
                "this Host is not served here; add it with --allowed-host if it is yours",
                "host_not_allowed",
                "Host",
            )
        if not _is_own_origin(origins, host):
            return Fault(
                403, "requests from other origins are refused", "origin_not_allowed", "Origin"
            )
        if not self._lets_in(scope, headers):
            return Fault(
                401,
                "the API key is missing or wrong; send it as a bearer token",
                "invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        is_post = scope["method"] == "POST" and _has_body(headers)
        if is_post and not _is_json(headers.get("content-type", "")):
            return Fault(
                415,
                "send the body as Content-Type: application/json",
                "unsupported_media_type",
                "Content-Type",
            )
        return None

    def _lets_in(self, scope: Scope, headers: dict[str, str]) -> bool:
        if scope["path"] in _OPEN_PATHS:
            return True
        scheme, _, token = headers.get("authorization", "").partition(" ")
        name = self._admit(scope["path"], token.strip() if scheme.lower() == "bearer" else "")
        if name is not None:
            scope["failsoft.caller"] = name
        return name is not None


def _checked_headers(scope: Scope) -> tuple[dict[str, str], list[str]]:
    """Return the headers that are looked at, the first of each name, and every origin."""
    found: dict[str, str] = {}
    origins = []
    for name, value in scope["headers"]:
        if name in _CHECKED:
            text = value.decode("latin-1")
            if name == b"origin":
                origins.append(text)
            found.setdefault(name.decode("ascii"), text)
    return found, origins


def _host_name(host: str) -> str:
    """Return a Host header's name: lower case, without port and brackets."""
    if host.startswith("["):
        name, bracket, rest = host[1:].partition("]")
        return name.lower() if bracket and rest[:1] in ("", ":") else ""
    return host.partition(":")[0].lower()


def _is_own_origin(origins: list[str], host: str) -> bool:
    """Whether the request comes from a page of this server, or from no page at all.

    ``null``, which sandboxed frames and local files send, is no page of ours.
    """
    return all(_authority(origin) == host.lower() for origin in origins)


def _authority(origin: str) -> str | None:
    """Return the host and port of a web page's origin; None for any other value."""
    try:
        parts = urlsplit(origin)
    except ValueError:  # such as an open bracket: this layer is outside the error handlers
        return None
    return parts.netloc.lower() if parts.scheme in ("http", "https") else None


def _has_body(headers: dict[str, str]) -> bool:
    """Whether a body is announced: without one there is nothing to read wrongly."""
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"
