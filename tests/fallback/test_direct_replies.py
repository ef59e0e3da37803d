"""The short way over plain HTTP: heads and bodies of every kind, and how they end."""

import asyncio

import pytest

from failsoft.errors import RungFailedError
from failsoft.fallback.failure import cause_of
from tests.fallback.direct_rig import BODIES, HEAD, answering, ask


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
