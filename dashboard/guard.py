"""Who may see the pages, and what a browser may do with them.

A server on loopback is reachable by any page the user's browser opens: through DNS
rebinding (an odd ``Host``), and through requests from another origin. Both are refused,
and so is every method but GET and HEAD: these pages change nothing. Knows no page.
"""

from collections.abc import Iterable
from urllib.parse import urlsplit

from flask import Flask, Response, request

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def guard(app: Flask, *, hosts: Iterable[str] = ()) -> None:
    """Have *app* refuse what is not meant for it, and stamp every answer.

    Args:
        app: The application.
        hosts: ``Host`` names to answer to beside the loopback ones, without port.
    """
    names = frozenset(name.lower().strip("[]") for name in (*LOOPBACK_NAMES, *hosts))

    def check() -> Response | None:
        host = request.headers.get("Host", "")
        if host_name(host) not in names:
            return _refusal(400, "this Host is not served here")
        if not _is_own_origin(request.headers.getlist("Origin"), host):
            return _refusal(403, "requests from other origins are refused")
        if request.method not in ("GET", "HEAD"):
            return _refusal(405, "these pages only show; use GET")
        return None

    def stamp(response: Response) -> Response:
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    app.before_request(check)
    app.after_request(stamp)


def host_name(host: str) -> str:
    """Return a Host header's name: lower case, without port and brackets.

    >>> [host_name(h) for h in ("LOCALHOST:80", "[::1]:8001", "[::1", "")]
    ['localhost', '::1', '', '']
    """
    if host.startswith("["):
        name, bracket, rest = host[1:].partition("]")
        return name.lower() if bracket and rest[:1] in ("", ":") else ""
    return host.partition(":")[0].lower()


def _is_own_origin(origins: list[str], host: str) -> bool:
    """Whether the request comes from a page of this server, or from no page at all."""
    return all(_authority(origin) == host.lower() for origin in origins)


def _authority(origin: str) -> str | None:
    try:
        parts = urlsplit(origin)
    except ValueError:  # such as an open bracket
        return None
    return parts.netloc.lower() if parts.scheme in ("http", "https") else None


def _refusal(status: int, why: str) -> Response:
    return Response(f"{why}\n", status=status, mimetype="text/plain")
