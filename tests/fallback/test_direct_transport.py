"""The short way over plain HTTP: clocks, requests, names, and what takes the long way."""

import asyncio
import contextlib
import socket

import pytest

from failsoft.errors import RungFailedError
from failsoft.fallback.direct_transport import DirectTransport
from failsoft.fallback.exchange import MAX_HELD_BYTES
from failsoft.fallback.failure import Action, cause_of
from failsoft.fallback.library_transport import LibraryTransport
from failsoft.fallback.transport import HTTPTransport
from tests.fallback.direct_rig import BODIES, HEAD, answering, ask, read, send, serving


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
