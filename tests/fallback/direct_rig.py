"""A server that says what it is told to, byte for byte, and the short way to ask it."""

import asyncio
import contextlib
import gzip
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from failsoft.fallback.direct_transport import DirectTransport
from failsoft.fallback.transport import HTTPReply, Transport

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"
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
