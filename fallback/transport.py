"""The seam to HTTP: bytes out, bytes in, failures translated; and which side a URL takes.

Plain HTTP to a server that no proxy stands before goes the short way
(`failsoft.fallback.direct_transport`), all else through httpx2
(`failsoft.fallback.library_transport`). Knows nothing of OpenAI, rungs or retries.
Units: seconds. A transport belongs to one event loop. It never retries and never
follows a redirect.
"""

import asyncio
import ipaddress
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Protocol
from urllib.parse import urlsplit

from failsoft.call_records import AttemptOutcome as Outcome
from failsoft.fallback.failure import Action, transport_failure

KEEPALIVE_S = 4.0
"""Idle connections go before a server's usual 5 s (uvicorn) closes them under a request."""
MAX_IDLE_CONNECTIONS = 64


class HTTPReply(Protocol):
    """One reply whose body arrives piece by piece."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    connect_s: float | None
    """None when an open connection was used again."""

    async def piece(self, timeout_s: float) -> bytes | None:
        """Return what came next of the body; None at its end.

        Raises:
            TimeoutError: Nothing came for *timeout_s*.
            RungFailedError: The body broke off.
        """

    async def aclose(self) -> None:
        """Close; a body not read to its end closes the connection too."""


class Transport(Protocol):
    """Sends requests; one for one event loop."""

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
        """POST *content*, or GET when it is None; return once the headers are in.

        *on_sent* is called when the whole request has left.

        Raises:
            RungFailedError: It could not be sent, or no reply's head came back.
        """

    async def aclose(self) -> None:
        """Close every connection."""


UNUSABLE = replace(
    transport_failure(Outcome.CONNECT_FAILED, "its URL, key or proxy setting cannot be used"),
    action=Action.STEP_DOWN,
)
"""What keeps a request from being made at all, whatever the endpoint does."""


class HTTPTransport:
    """Sends each request the way its URL needs."""

    def __init__(self) -> None:
        self._ways: dict[str, Transport] = {}
        self._made: dict[bool, Transport] = {}

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
        """See `Transport.send`."""
        way = self._ways.get(url) or self._choose(url)
        return await way.send(
            url,
            headers=headers,
            content=content,
            connect_s=connect_s,
            rung=rung,
            on_sent=on_sent,
        )

    async def aclose(self) -> None:
        """Close every connection."""
        made, self._made, self._ways = list(self._made.values()), {}, {}
        await asyncio.gather(*(way.aclose() for way in made))

    def _choose(self, url: str) -> Transport:
        is_direct = _is_direct(url)
        if is_direct not in self._made:
            self._made[is_direct] = _make(is_direct=is_direct)
        self._ways[url] = self._made[is_direct]
        return self._ways[url]


def load_library() -> None:
    """Import all that a request needs; called before the first one.

    A process that forks during an import leaves the module's lock held in its child for
    ever, so nothing is imported once calls may run.
    """
    from failsoft.fallback.library_transport import load_late_imports

    import_module("failsoft.fallback.direct_transport")
    load_late_imports()


def is_loopback(host: str) -> bool:
    """Return whether *host* is this machine: no proxy may stand between it and us."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_direct(url: str) -> bool:
    """Return whether *url* needs neither TLS nor, perhaps, a proxy."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not url.isascii():  # the library writes such names for the wire
        return False
    proxies = urllib.request.getproxies_environment()
    return is_loopback(parts.hostname or "") or not ("http" in proxies or "all" in proxies)


def _make(*, is_direct: bool) -> Transport:
    from failsoft.fallback.direct_transport import DirectTransport
    from failsoft.fallback.library_transport import LibraryTransport

    return DirectTransport() if is_direct else LibraryTransport()
