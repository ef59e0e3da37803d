"""The short way over plain HTTP: which connections are used again, and which are not."""

import asyncio
import socket
import threading

import pytest

from failsoft.errors import RungFailedError
from failsoft.fallback.connection import Connection
from failsoft.fallback.direct_transport import DirectTransport
from failsoft.fallback.exchange import Exchange
from failsoft.fallback.failure import cause_of
from failsoft.fallback.transport import MAX_IDLE_CONNECTIONS, HTTPReply
from tests.fallback.direct_rig import BODIES, HEAD, answering, read, send, serving


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
