"""What leaves on a caller's connection, and when."""

import socket
from pathlib import Path

import httpx2
import pytest

from tests.engine.http.rig import raw_post
from tests.fallback.fault_server import FaultServer
from tests.serving.front.rig import FrontProcess, front, toml

ASK = b'{"messages": [{"role": "user", "content": "x"}]}'


def connect(shared: FrontProcess) -> socket.socket:
    """Open a connection to the front."""
    port = int(shared.url.split(":")[2].split("/")[0])
    return socket.create_connection(("127.0.0.1", port), timeout=5)


def test_a_short_reply_is_one_packet(shared: FrontProcess) -> None:
    """Its head waits for its body: waking a peer is the dearest part of a short call."""
    with connect(shared) as connection:
        connection.sendall(raw_post("/v1/chat/completions", ASK))
        received = connection.recv(65536)

    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert body.endswith(b"}")


def test_a_reply_without_a_body_leaves_too(shared: FrontProcess) -> None:
    """HEAD has a head only, and the connection goes on."""
    with httpx2.Client(base_url=shared.url.removesuffix("/v1"), verify=False) as client:
        replies = [client.head("/health") for _ in range(2)]

    assert [reply.status_code for reply in replies] == [200, 200]


def test_a_request_that_is_none_is_told_so(shared: FrontProcess) -> None:
    """The connection closes after it."""
    with connect(shared) as connection:
        connection.sendall(b"what is this\r\n\r\n")
        received = b""
        while piece := connection.recv(65536):
            received += piece

    assert received.startswith(b"HTTP/1.1 400")


def test_a_caller_who_waits_for_leave_to_send_gets_it(shared: FrontProcess) -> None:
    """``Expect: 100-continue``: the interim reply does not wait for a body."""
    with connect(shared) as connection:
        head, _, body = raw_post("/v1/chat/completions", ASK, "Expect: 100-continue").partition(
            b"\r\n\r\n"
        )
        connection.sendall(head + b"\r\n\r\n")
        interim = connection.recv(65536)
        connection.sendall(body)
        received = connection.recv(65536)

    assert interim == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert received.startswith(b"HTTP/1.1 200")


def test_requests_that_come_at_once_are_answered_in_order(shared: FrontProcess) -> None:
    """Two calls in one packet, as HTTP/1.1 lets a client do."""
    with connect(shared) as connection:
        connection.sendall(raw_post("/v1/chat/completions", ASK) * 2)
        received = b""
        while received.count(b'"usage"') < 2:
            piece = connection.recv(65536)
            assert piece
            received += piece

    assert received.count(b"HTTP/1.1 200") == 2


def test_nothing_is_answered_behind_a_stream_that_broke(
    shared: FrontProcess, server_a: FaultServer
) -> None:
    """The connection closes after the event, also where a second call waits on it."""
    server_a.plan({"do": "cut", "how": "eof"})
    stream = ASK.replace(b"{", b'{"stream": true, ', 1)
    with connect(shared) as connection:
        connection.sendall(raw_post("/v1/chat/completions", stream) * 2)
        received = b""
        while piece := connection.recv(65536):
            received += piece

    assert received.count(b"HTTP/1.1 200") == 1
    assert b"stream_interrupted" in received
    assert received.endswith(b"0\r\n\r\n")


OFFER = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAAB")
"""What Java's own client sends along with each plain request."""


@pytest.mark.parametrize("size", [1, 40, 400], ids=["bytes", "pieces", "packet"])
def test_who_offers_another_protocol_is_answered_in_this_one(
    shared: FrontProcess, server_a: FaultServer, size: int
) -> None:
    """Its body used to be lost: a 400, and where it came later it was read as the next request."""
    forged = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    raw = raw_post("/v1/chat/completions", ASK + b" " * 50 + b"\n", *OFFER)
    evil = raw_post("/v1/chat/completions", forged, *OFFER)
    with connect(shared) as connection:
        for start in range(0, len(raw), size):
            connection.sendall(raw[start : start + size])
        received = connection.recv(65536)
        connection.sendall(evil + forged)
        while received.count(b"HTTP/1.1 ") < 3:
            piece = connection.recv(65536)
            assert piece
            received += piece

    statuses = [reply[:3] for reply in received.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"400", b"200"], "the body of the second is no request"
    assert server_a.stats()["requests"][0]["body"]["messages"][0]["content"] == "x"


def test_a_body_in_chunks_behind_an_offer_is_no_request(shared: FrontProcess) -> None:
    """Nobody can say where it ends: one answer, and the connection closes."""
    head, _, _ = raw_post("/v1/chat/completions", b"", *OFFER).partition(b"\r\n\r\n")
    head = head.replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    with connect(shared) as connection:
        connection.sendall(head + b"\r\n\r\n2a\r\nGET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        received = b""
        while piece := connection.recv(65536):
            received += piece

    assert received.count(b"HTTP/1.1 ") == 1
    assert received.startswith(b"HTTP/1.1 400")


def test_a_body_that_trickles_in_is_cut_off(tmp_path: Path, server_a: FaultServer) -> None:
    """It held a connection, and a call in the front's books, for as long as it liked."""
    whole = raw_post("/v1/chat/completions", ASK)
    with front(tmp_path, toml(server_a), "--body-timeout-s", "0.3") as process:
        with connect(process) as connection:
            connection.sendall(whole[:-10])
            received = b""
            while piece := connection.recv(65536):
                received += piece

        assert received.startswith(b"HTTP/1.1 408")
        assert b'"code":"body_too_slow"' in received.replace(b": ", b":")
        assert b"connection: close" in received.lower()
        assert process.status()["num_open_calls"] == 0
        assert process.post().status_code == 200
