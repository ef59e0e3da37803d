"""Plain HTTP/1.1 to a server that nothing stands before: the short way of the ladder.

Sockets of asyncio's, llhttp's parser, a pool of idle connections. It costs a stream's
delta a fifth of what a general client takes (see ADR 0021). Units: seconds. See
`failsoft.fallback.transport`.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import urlsplit

from failsoft.call_records import AttemptOutcome as Outcome
from failsoft.errors import RungFailedError
from failsoft.fallback.connection import Connection
from failsoft.fallback.exchange import Exchange
from failsoft.fallback.failure import Action, transport_failure
from failsoft.fallback.transport import KEEPALIVE_S, MAX_IDLE_CONNECTIONS, UNUSABLE, HTTPReply

BUFFER_BYTES = 64 * 1024
DEFAULT_PORT = 80
HAPPY_EYEBALLS_S = 0.25
"""After this long the next address of a name is tried too (RFC 8305)."""
USER_AGENT = "failsoft"


class Origin(NamedTuple):
    """Whom to connect to."""

    host: str
    port: int

    @property
    def is_name(self) -> bool:
        """Whether it must be looked up, and may have several addresses."""
        return self.host.strip("0123456789.") != "" and ":" not in self.host


class _Place(NamedTuple):
    """A URL, ready to be asked."""

    origin: Origin
    start: bytes
    """From the path on, up to the headers that differ."""


class DirectTransport:
    """Direct connections of one event loop."""

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}
        self._idle: dict[Origin, deque[Connection]] = {}
        self._num_idle = 0
        self._open: dict[Connection, Origin] = {}
        self._buffer = bytearray(BUFFER_BYTES)
        self._closing: asyncio.Future[None] | None = None

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
        try:
            place = self._places.get(url) or self._remember(url)
        except ValueError:  # a port that is none
            raise RungFailedError(rung=rung, cause=UNUSABLE) from None
        request = _request(place, headers, content, rung=rung)
        took_s = None
        connection = self._take(place.origin)
        if connection is None:
            began_s = time.monotonic()
            connection = await self._connect(place.origin, timeout_s=connect_s, rung=rung)
            took_s = time.monotonic() - began_s
        exchange = Exchange(connection, rung=rung, connect_s=took_s)
        connection.begin(exchange, request, on_sent)
        try:
            await exchange.head()
        except BaseException:
            await exchange.aclose()
            raise
        return exchange

    async def aclose(self) -> None:
        """Close every connection."""
        for connection in list(self._open):
            self._rest(connection)
            connection.abort()
        if self._open:  # their sockets close on the loop's next turn
            self._closing = asyncio.get_running_loop().create_future()
            await self._closing

    def _remember(self, url: str) -> _Place:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port or DEFAULT_PORT
        name = f"[{host}]" if ":" in host else host
        authority = name if port == DEFAULT_PORT else f"{name}:{port}"
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        start = f"{path} HTTP/1.1\r\nhost: {authority}\r\nuser-agent: {USER_AGENT}\r\n"
        place = _Place(Origin(host, port), start.encode("ascii", "replace"))
        self._places[url] = place
        return place

    # Connections.

    def _take(self, origin: Origin) -> Connection | None:
        """Return the idle connection that was used last."""
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            self._num_idle -= 1
            _stop_expiry(connection)
            if connection.is_usable and connection.is_quiet:
                return connection
            connection.abort()
        return None

    async def _connect(self, origin: Origin, *, timeout_s: float, rung: str) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._open_connection(loop, origin)
        except TimeoutError as exc:
            # As with every clock: the time is spent, so the next rung is the better try.
            late = transport_failure(Outcome.TIMEOUT_CONNECT, "the connect clock ran out")
            raise RungFailedError(rung=rung, cause=replace(late, action=Action.STEP_DOWN)) from exc
        except (OSError, UnicodeError) as exc:
            failure = transport_failure(Outcome.CONNECT_FAILED, "no connection")
            raise RungFailedError(rung=rung, cause=failure) from exc
        if connection.is_usable:  # else it is lost already, and nobody will tell again
            self._open[connection] = origin
        return connection

    async def _open_connection(self, loop: asyncio.AbstractEventLoop, origin: Origin) -> Connection:
        def make() -> Connection:
            return Connection(self._buffer, on_free=self._keep, on_lost=self._forget)

        if origin.is_name and isinstance(loop, asyncio.BaseEventLoop):
            _, connection = await loop.create_connection(
                make, origin.host, origin.port, happy_eyeballs_delay=HAPPY_EYEBALLS_S
            )
        else:  # uvloop knows no such argument
            _, connection = await loop.create_connection(make, origin.host, origin.port)
        return connection

    def _keep(self, connection: Connection) -> None:
        """Take a connection back whose exchange is over."""
        if self._num_idle >= MAX_IDLE_CONNECTIONS or connection not in self._open:
            connection.abort()
            return
        self._idle.setdefault(self._open[connection], deque()).append(connection)
        self._num_idle += 1
        loop = asyncio.get_running_loop()
        connection.expiry = loop.call_later(KEEPALIVE_S, connection.abort)

    def _rest(self, connection: Connection) -> None:
        """Take *connection* off the idle ones, if it is one."""
        if _stop_expiry(connection):
            self._idle[self._open[connection]].remove(connection)
            self._num_idle -= 1

    def _forget(self, connection: Connection) -> None:
        if connection in self._open:
            self._rest(connection)
            del self._open[connection]
        if self._closing is not None and not self._open and not self._closing.done():
            self._closing.set_result(None)


def _stop_expiry(connection: Connection) -> bool:
    """Let an idle connection live; False when it was not idle."""
    if connection.expiry is None:
        return False
    connection.expiry.cancel()
    connection.expiry = None
    return True


def _request(
    place: _Place, headers: list[tuple[str, str]], content: bytes | None, *, rung: str
) -> bytes:
    """Return the whole request.

    Raises:
        RungFailedError: A header cannot be sent, such as a key with a line end.
    """
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    if len(headers) != lines.count("\n") or lines.count("\r") != len(headers):
        raise RungFailedError(rung=rung, cause=UNUSABLE)
    try:
        head = place.start + lines.encode("ascii")
    except UnicodeEncodeError:
        # Its words would quote the key.
        raise RungFailedError(rung=rung, cause=UNUSABLE) from None
    if content is None:
        return b"GET " + head + b"\r\n"
    return b"POST %bcontent-length: %d\r\n\r\n%b" % (head, len(content), content)
