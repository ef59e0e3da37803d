"""The short way over plain HTTP: connections, bodies of every kind, and how they end."""

import asyncio
import contextlib
import gzip
import socket
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from failsoft.errors import RungFailedError
from failsoft.fallback.connection import Connection
from failsoft.fallback.direct_transport import DirectTransport
from failsoft.fallback.exchange import MAX_HELD_BYTES, Exchange
from failsoft.fallback.failure import Action, cause_of
from failsoft.fallback.library_transport import LibraryTransport
from failsoft.fallback.transport import (
    MAX_IDLE_CONNECTIONS,
    HTTPReply,
    HTTPTransport,
    Transport,
)

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"


@contextlib.asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[str]:
    """Serve raw bytes on a loopback port; yield the URL."""

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(guarded, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/x"
    finally:
        server.close()


def answering(*replies: bytes, requests: list[bytes] | None = None) -> Serve:
    """Answer the requests of a connection with *replies*, one each, then close."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for reply in replies:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
            body = await reader.readexactly(length)
            if requests is not None:
                requests.append(head + body)
            writer.write(reply)
            await writer.drain()

    return serve


async def send(
    transport: Transport,
    url: str,
    *,
    content: bytes | None = b"{}",
    headers: tuple[tuple[str, str], ...] = (),
    connect_s: float = 1.0,
    on_sent: Callable[[], None] = lambda: None,
) -> HTTPReply:
    """Send one request."""
    return await transport.send(
        url,
        headers=list(headers),
        content=content,
        connect_s=connect_s,
        rung="a",
        on_sent=on_sent,
    )


async def read(reply: HTTPReply) -> bytes:
    """Return the whole body and close."""
    pieces = []
    while (piece := await reply.piece(1.0)) is not None:
        pieces.append(piece)
    await reply.aclose()
    return b"".join(pieces)


async def ask(serve: Serve, **arguments: Any) -> tuple[HTTPReply, bytes]:
    """Send one request to *serve*; return the reply and its body."""
    transport = DirectTransport()
    async with serving(serve) as url:
        try:
            reply = await send(transport, url, **arguments)
            return reply, await read(reply)
        finally:
            await transport.aclose()


DEFLATED = zlib.compress(b"soft")
BODIES = {
    "length": HEAD + b"content-length: 4\r\n\r\nsoft",
    "chunks": HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\ns\r\n3\r\noft\r\n0\r\n\r\n",
    "trailers": HEAD + b"transfer-encoding: chunked\r\n\r\n4\r\nsoft\r\n0\r\nx-end: 1\r\n\r\n",
    "until-the-end": HEAD + b"connection: close\r\n\r\nsoft",
    "http-1.0": b"HTTP/1.0 200 OK\r\n\r\nsoft",
    "after-an-interim-reply": b"HTTP/1.1 100 Continue\r\nx: 1\r\n\r\n"
    + HEAD
    + b"content-length: 4\r\n\r\nsoft",
    "gzip": HEAD
    + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(gzip.compress(b"soft"))
    + gzip.compress(b"soft"),
    "deflate": HEAD
    + b"content-encoding: deflate\r\ncontent-length: %d\r\n\r\n" % len(DEFLATED)
    + DEFLATED,
}


@pytest.mark.parametrize("raw", BODIES.values(), ids=BODIES.keys())
def test_a_body_is_read_to_its_end(raw: bytes) -> None:
    """By length, chunks or the connection's end; what is packed is unpacked."""
    reply, body = asyncio.run(ask(answering(raw)))

    assert body == b"soft"
    assert reply.status == 200
    assert not {"x", "x-end"} & set(reply.headers)


BROKEN = {
    "short-length": (HEAD + b"content-length: 9\r\n\r\nsoft", "cut"),
    "short-chunks": (HEAD + b"transfer-encoding: chunked\r\n\r\n4\r\nsoft\r\n", "cut"),
    "bad-chunk": (HEAD + b"transfer-encoding: chunked\r\n\r\n4\r\nsoft\r\nzz\r\n", "cut"),
    "bad-gzip": (HEAD + b"content-encoding: gzip\r\ncontent-length: 4\r\n\r\nsoft", "bad_reply"),
    "brotli": (HEAD + b"content-encoding: br\r\ncontent-length: 4\r\n\r\nsoft", "bad_reply"),
}


@pytest.mark.parametrize(("raw", "outcome"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_body_is_a_failure_and_not_an_end(raw: bytes, outcome: str) -> None:
    """A cut that looks whole would be shown as success."""
    with pytest.raises(RungFailedError) as caught:
        asyncio.run(ask(answering(raw)))

    assert cause_of(caught.value).outcome == outcome


HEADS = {
    "nothing": (b"", "reset"),
    "half-a-head": (b"HTTP/1.1 200 OK\r\ncontent-", "reset"),
    "no-http": (b"SSH-2.0-OpenSSH\r\n\r\n", "bad_reply"),
    "endless": (b"HTTP/1.1 200 OK\r\nx: " + b"a" * 200_000, "bad_reply"),
    "upgrade": (
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        "bad_reply",
    ),
}


@pytest.mark.parametrize(("raw", "outcome"), HEADS.values(), ids=HEADS.keys())
def test_a_head_that_is_none_is_told_from_a_closed_connection(raw: bytes, outcome: str) -> None:
    """The first is the server's fault for good, the second may pass."""
    with pytest.raises(RungFailedError) as caught:
        asyncio.run(ask(answering(raw)))

    assert cause_of(caught.value).outcome == outcome


def test_a_connection_is_used_again_after_a_whole_reply() -> None:
    """The second request has no connect time; both came on one connection."""
    whole = BODIES["length"]

    async def run() -> list[float | None]:
        transport = DirectTransport()
        times = []
        async with serving(answering(whole, BODIES["chunks"], whole)) as url:
            for _ in range(3):
                reply = await send(transport, url)
                times.append(reply.connect_s)
                assert await read(reply) == b"soft"
            await transport.aclose()
        return times

    first, *rest = asyncio.run(run())

    assert first is not None
    assert rest == [None, None]


@pytest.mark.parametrize(
    "raw",
    [
        HEAD + b"connection: close\r\ncontent-length: 4\r\n\r\nsoft",
        BODIES["http-1.0"],
        BODIES["until-the-end"],
        BODIES["length"] + b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged",
    ],
    ids=["said-close", "http-1.0", "until-the-end", "stray-bytes"],
)
def test_a_connection_that_may_not_be_used_again_is_not(raw: bytes) -> None:
    """Least of all one on which the next reply lies ready."""

    async def run() -> list[bytes]:
        transport = DirectTransport()
        bodies = []
        async with serving(answering(raw)) as url:
            for _ in range(2):
                reply = await send(transport, url)
                assert reply.connect_s is not None
                bodies.append(await read(reply))
            await transport.aclose()
        return bodies

    assert asyncio.run(run()) == [b"soft", b"soft"]


def test_an_idle_connection_that_the_server_closed_is_not_used() -> None:
    """It is gone before anybody asks."""

    async def run() -> None:
        transport = DirectTransport()
        async with serving(answering(BODIES["length"])) as url:
            await read(await send(transport, url))
            await asyncio.sleep(0.05)  # the end must arrive; nothing here tells when
            reply = await send(transport, url)
            assert reply.connect_s is not None
            await read(reply)
            await transport.aclose()

    asyncio.run(run())


def test_an_idle_connection_whose_end_lies_unread_is_not_used() -> None:
    """A busy loop comes to it late; the request used to be lost, and counted against the server."""
    may_close, closed = threading.Event(), threading.Event()

    def serve(listener: socket.socket) -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(BODIES["length"])
                may_close.wait(5)
            closed.set()

    async def run(port: int) -> HTTPReply:
        transport = DirectTransport()
        await read(await send(transport, f"http://127.0.0.1:{port}/"))
        may_close.set()
        closed.wait(5)  # and the loop gets no turn before the next request
        reply = await send(transport, f"http://127.0.0.1:{port}/")
        await read(reply)
        await transport.aclose()
        return reply

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        reply = asyncio.run(run(listener.getsockname()[1]))
        thread.join(5)

    assert reply.connect_s is not None


def test_a_reply_that_comes_before_its_request_has_left_spoils_the_connection() -> None:
    """The server may take the rest of the body, a caller's words, for the next request."""
    is_over = asyncio.Event()
    early = HEAD.replace(b"200 OK", b"413 Too Large") + b"content-length: 4\r\n\r\nsoft"

    async def reads_no_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(early)
        await is_over.wait()

    async def run() -> list[bool]:
        transport = DirectTransport()
        are_new = []
        async with serving(reads_no_body) as url, asyncio.timeout(5):
            for size in (20_000_000, 2):
                reply = await send(transport, url, content=b"x" * size)
                are_new.append(reply.connect_s is not None)
                assert await read(reply) == b"soft"
            is_over.set()
            await transport.aclose()
        return are_new

    assert asyncio.run(run()) == [True, True]


def test_a_connection_that_is_lost_before_its_first_request_is_a_reset() -> None:
    """And no bug of ours: the ladder goes on."""

    async def run() -> None:
        connection = Connection(bytearray(8), on_free=lambda _: None, on_lost=lambda _: None)
        exchange = Exchange(connection, rung="a", connect_s=0.1)
        connection.begin(exchange, b"GET / HTTP/1.1\r\n\r\n", lambda: None)
        try:
            await exchange.head()
        finally:
            await exchange.aclose()

    with pytest.raises(RungFailedError) as caught:
        asyncio.run(run())

    assert cause_of(caught.value).outcome == "reset"


def test_idle_connections_are_bounded() -> None:
    """What came in a burst does not stay open for ever."""

    async def run() -> int:
        transport = DirectTransport()
        async with serving(answering(BODIES["length"])) as url:
            replies = [await send(transport, url) for _ in range(MAX_IDLE_CONNECTIONS + 3)]
            for reply in replies:
                await read(reply)
            num_idle = transport._num_idle
            await transport.aclose()
        return num_idle

    assert asyncio.run(run()) <= MAX_IDLE_CONNECTIONS


def test_leaving_a_reply_closes_its_connection() -> None:
    """That is how an endpoint hears that nobody reads any more."""
    gone = asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n4\r\nsoft\r\n")
        await reader.read()
        gone.set()

    async def run() -> None:
        transport = DirectTransport()
        async with serving(endless) as url:
            reply = await send(transport, url, content=None)
            assert await reply.piece(1.0) == b"soft"
            await reply.aclose()
            async with asyncio.timeout(1):
                await gone.wait()
            await reply.aclose()
            await transport.aclose()

    asyncio.run(run())


def test_silence_ends_at_the_time_out_and_each_piece_starts_it_anew() -> None:
    """A slow stream is no silent one."""

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        for _ in range(5):
            await asyncio.sleep(0.1)
            writer.write(b"1\r\nx\r\n")
        await reader.read()

    async def run() -> tuple[bytes, float]:
        transport = DirectTransport()
        async with serving(slow) as url:
            reply = await send(transport, url, content=None)
            body = b"".join([await reply.piece(0.4) or b"" for _ in range(5)])
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            with pytest.raises(TimeoutError):
                await reply.piece(0.4)
            took_s = loop.time() - began_s
            await reply.aclose()
            await transport.aclose()
        return body, took_s

    body, took_s = asyncio.run(run())

    assert body == b"xxxxx"
    assert 0.39 <= took_s < 3


def test_a_reader_that_rests_holds_its_server_up() -> None:
    """Memory stays bounded, and every byte comes in the end."""
    total = 32 * MAX_HELD_BYTES

    async def run() -> tuple[int, int]:
        transport = DirectTransport()
        reply_bytes = HEAD + b"content-length: %d\r\n\r\n" % total + b"x" * total
        async with serving(answering(reply_bytes)) as url:
            reply = await send(transport, url)
            await asyncio.sleep(0.2)  # time to read everything, if it would
            held = reply._num_held  # type: ignore[attr-defined]
            body = await read(reply)
            await transport.aclose()
        return held, len(body)

    held, length = asyncio.run(run())

    assert held <= 2 * MAX_HELD_BYTES
    assert length == total


def test_a_large_request_counts_as_sent_when_its_last_byte_left() -> None:
    """Not while the server reads none of it: the ledger and the wire agree."""
    content = b"x" * 20_000_000
    may_read = asyncio.Event()
    sent: list[bool] = []

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await may_read.wait()
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(len(content))
        writer.write(BODIES["length"])

    async def run() -> list[bool]:
        transport = DirectTransport()
        async with serving(late) as url:
            asking = asyncio.create_task(
                send(transport, url, content=content, on_sent=lambda: sent.append(True))
            )
            await asyncio.sleep(0.1)
            before = list(sent)
            may_read.set()
            await read(await asking)
            await transport.aclose()
        return before

    assert asyncio.run(run()) == []
    assert sent == [True]


def test_a_request_is_written_as_http_says() -> None:
    """Path and query as given, Host with its port, a length for a body and none without."""
    requests: list[bytes] = []

    async def run() -> str:
        transport = DirectTransport()
        serve = answering(BODIES["length"], BODIES["length"], requests=requests)
        async with serving(serve) as url:
            await read(await send(transport, url + "?a=b", headers=(("x-one", "1"),)))
            await read(await send(transport, url, content=None))
            await transport.aclose()
        return url.removeprefix("http://").partition("/")[0]

    host = asyncio.run(run())

    head = f"host: {host}\r\nuser-agent: failsoft\r\n"
    assert requests == [
        f"POST /v1/x?a=b HTTP/1.1\r\n{head}x-one: 1\r\ncontent-length: 2\r\n\r\n{{}}".encode(),
        f"GET /v1/x HTTP/1.1\r\n{head}\r\n".encode(),
    ]


@pytest.mark.parametrize("value", ["key\n", "a\r\nx: y", "schlüssel"])
def test_a_header_that_cannot_be_sent_is_refused(value: str) -> None:
    """A key from the environment may end in a line end; it must not become a header."""
    with pytest.raises(RungFailedError) as caught:
        asyncio.run(ask(answering(BODIES["length"]), headers=(("authorization", value),)))

    assert cause_of(caught.value).outcome == "connect_failed"


def test_a_connect_clock_that_runs_out_steps_down() -> None:
    """A server whose queue of connections is full answers nothing at all."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        held = []
        for _ in range(8):
            filler = socket.socket()
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(("127.0.0.1", port))
            held.append(filler)

        async def run() -> None:
            await send(DirectTransport(), f"http://127.0.0.1:{port}/", connect_s=0.1)

        with pytest.raises(RungFailedError) as caught:
            asyncio.run(run())
        for filler in held:
            filler.close()

    assert cause_of(caught.value).outcome == "timeout_connect"
    assert cause_of(caught.value).action is Action.STEP_DOWN


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 70])
def test_a_name_that_nobody_knows_is_no_connection(host: str) -> None:
    """Also one that cannot be a name."""

    async def run() -> None:
        await send(DirectTransport(), f"http://{host}/")

    with pytest.raises(RungFailedError) as caught:
        asyncio.run(run())

    assert cause_of(caught.value).outcome == "connect_failed"


def test_a_name_is_looked_up() -> None:
    """Localhost may be IPv6 first; the server listens on IPv4 only."""

    async def run() -> bytes:
        transport = DirectTransport()
        async with serving(answering(BODIES["length"])) as url:
            body = await read(await send(transport, url.replace("127.0.0.1", "localhost")))
            await transport.aclose()
        return body

    assert asyncio.run(run()) == b"soft"


def test_another_event_loop_will_do() -> None:
    """uvloop, which a server brings: names, reuse and sending alike."""
    uvloop = pytest.importorskip("uvloop")
    sent: list[bool] = []

    async def run() -> list[bytes]:
        transport = DirectTransport()
        bodies = []
        async with serving(answering(BODIES["length"], BODIES["chunks"])) as url:
            for _ in range(2):
                reply = await send(
                    transport,
                    url.replace("127.0.0.1", "localhost"),
                    on_sent=lambda: sent.append(True),
                )
                bodies.append(await read(reply))
            await transport.aclose()
        return bodies

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(run()) == [b"soft", b"soft"]
    assert sent == [True, True]


@pytest.mark.parametrize(
    ("url", "environ", "kind"),
    [
        ("http://10.0.0.1/v1", {}, DirectTransport),
        ("https://10.0.0.1/v1", {}, LibraryTransport),
        ("http://10.0.0.1/v1", {"http_proxy": "http://p:1"}, LibraryTransport),
        ("http://10.0.0.1/v1", {"ALL_PROXY": "http://p:1"}, LibraryTransport),
        ("http://10.0.0.1/v1", {"https_proxy": "http://p:1"}, DirectTransport),
        ("http://localhost:1/v1", {"http_proxy": "http://p:1"}, DirectTransport),
        ("http://bücher.example/v1", {}, LibraryTransport),
    ],
)
def test_tls_and_proxies_take_the_long_way(
    monkeypatch: pytest.MonkeyPatch, url: str, environ: dict[str, str], kind: type
) -> None:
    """And nothing stands between this machine and itself."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    assert isinstance(HTTPTransport()._choose(url), kind)
