"""httpx2 behind the seam: what needs TLS or a proxy.

The one module of the ladder that knows the library. Units: seconds. See
`failsoft.fallback.transport`.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import httpx2

from failsoft.call_records import AttemptOutcome as Outcome
from failsoft.errors import RungFailedError
from failsoft.fallback.failure import Action, Failure, bad_reply, cut, transport_failure
from failsoft.fallback.transport import (
    KEEPALIVE_S,
    MAX_IDLE_CONNECTIONS,
    UNUSABLE,
    HTTPReply,
    is_loopback,
)

_LATE_IMPORTS = (
    "anyio._backends._asyncio",
    "concurrent.futures.thread",
    "h11",
    "httpcore2",
    "httpcore2._backends.anyio",
    "sniffio",
    "truststore",
)
"""What a first request would import."""


@dataclass(slots=True)
class _Watch:
    on_sent: Callable[[], None]
    started_s: float | None = None
    connect_s: float | None = None

    async def __call__(self, event: str, _info: dict[str, Any]) -> None:
        if event.startswith("connection.connect_tcp."):
            if event.endswith("started"):
                self.started_s = time.monotonic()
            elif event.endswith("complete") and self.started_s is not None:
                self.connect_s = time.monotonic() - self.started_s
        elif event == "http11.send_request_body.started":
            # The write follows without giving way; a cancel may hit before the event's end.
            self.on_sent()


class _Reply:
    """An httpx2 response behind the seam."""

    __slots__ = ("_pieces", "_response", "_rung", "connect_s", "headers", "status")

    def __init__(self, response: httpx2.Response, connect_s: float | None, rung: str) -> None:
        self._response = response
        self._rung = rung
        self._pieces: AsyncIterator[bytes] = response.aiter_bytes()
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.connect_s = connect_s

    async def piece(self, timeout_s: float) -> bytes | None:
        try:
            async with asyncio.timeout(timeout_s):
                return await anext(self._pieces, None)
        except httpx2.HTTPError as exc:
            raise RungFailedError(rung=self._rung, cause=body_failure(exc)) from _quotable(exc)

    async def aclose(self) -> None:
        try:
            await self._response.aclose()
        except (httpx2.HTTPError, OSError):
            return  # it is gone either way


def load_late_imports() -> None:
    """Import what a first request would."""
    for name in _LATE_IMPORTS:
        with contextlib.suppress(ModuleNotFoundError):
            import_module(name)


class LibraryTransport:
    """httpx2, one client for plain loopback traffic and one for the rest."""

    def __init__(self) -> None:
        self._clients: dict[tuple[bool, bool], httpx2.AsyncClient] = {}
        self._urls: dict[str, tuple[httpx2.URL, httpx2.AsyncClient]] = {}

    async def send(
        self,
        url: str,
        *,
        headers: list[tuple[str, str]],
        content: bytes | None,
        connect_s: float,
        rung: str,
        on_sent: Callable[[], None] = lambda: None,
    ) -> HTTPReply:
        """See `failsoft.fallback.transport.Transport.send`."""
        watch = _Watch(on_sent)
        try:
            parsed, client = self._urls.get(url) or self._remember(url)
            request = httpx2.Request(
                "GET" if content is None else "POST",
                parsed,
                headers=headers,
                content=content,
                extensions={
                    "timeout": {"connect": connect_s, "read": None, "write": None, "pool": None},
                    "trace": watch,
                },
            )
        except (ImportError, ValueError, httpx2.InvalidURL):
            # The words may quote a header: none are shown.
            raise RungFailedError(rung=rung, cause=UNUSABLE) from None
        try:
            response = await client.send(request, stream=True)
        except httpx2.HTTPError as exc:
            raise RungFailedError(rung=rung, cause=head_failure(exc)) from _quotable(exc)
        except (UnicodeError, ValueError) as exc:
            # A reply head that h11 let through and the library could not read.
            raise RungFailedError(rung=rung, cause=bad_reply("a reply head that is none")) from exc
        return _Reply(response, watch.connect_s, rung)

    async def aclose(self) -> None:
        """Close every connection."""
        clients, self._clients, self._urls = list(self._clients.values()), {}, {}
        await asyncio.gather(*(client.aclose() for client in clients))

    def _remember(self, url: str) -> tuple[httpx2.URL, httpx2.AsyncClient]:
        parts = urlsplit(url)
        kind = (parts.scheme == "https", is_loopback(parts.hostname or ""))
        if kind not in self._clients:
            self._clients[kind] = _make_client(is_tls=kind[0], is_local=kind[1])
        self._urls[url] = (httpx2.URL(url), self._clients[kind])
        return self._urls[url]


def _make_client(*, is_tls: bool, is_local: bool) -> httpx2.AsyncClient:
    # A plain client never speaks TLS, and loading the root certificates takes tens of ms.
    context = ssl.create_default_context() if is_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx2.AsyncClient(
        verify=context,
        trust_env=not is_local,
        follow_redirects=False,
        limits=httpx2.Limits(
            max_connections=None,
            max_keepalive_connections=MAX_IDLE_CONNECTIONS,
            keepalive_expiry=KEEPALIVE_S,
        ),
    )


def head_failure(exc: httpx2.HTTPError) -> Failure:
    """Translate what kept a reply's head from coming."""
    if isinstance(exc, httpx2.ConnectTimeout):
        # As with every clock: the time is spent, so the next rung is the better try.
        failure = transport_failure(Outcome.TIMEOUT_CONNECT, "the connect clock ran out")
        return replace(failure, action=Action.STEP_DOWN)
    if isinstance(exc, httpx2.ConnectError | httpx2.ProxyError):
        return transport_failure(Outcome.CONNECT_FAILED, "no connection")
    if isinstance(exc, httpx2.RemoteProtocolError) and "without sending" not in str(exc):
        return bad_reply("not an HTTP reply")
    if isinstance(exc, httpx2.UnsupportedProtocol | httpx2.LocalProtocolError):
        return bad_reply("a request the HTTP library refuses")
    return transport_failure(Outcome.RESET, "the connection closed before the reply")


def _quotable(exc: httpx2.HTTPError) -> httpx2.HTTPError | None:
    """Return *exc* for a traceback; None when its words quote bytes: a key, or a user's text."""
    return None if isinstance(exc, httpx2.ProtocolError | httpx2.DecodingError) else exc


def body_failure(exc: httpx2.HTTPError) -> Failure:
    """Translate what broke a reply's body off."""
    if isinstance(exc, httpx2.DecodingError):
        return bad_reply("a body that does not decode")
    return cut("the connection closed inside the reply")
