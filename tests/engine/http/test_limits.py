"""What a request may be at most: each limit is named where it is passed."""

import gzip
import time
from typing import Any

import pytest

from failsoft.engine.http.body import MAX_DEPTH, parse_json
from failsoft.engine.http.schemas import MAX_MESSAGES, MAX_PROMPTS, MAX_STOP_STRINGS
from failsoft.errors import InvalidRequestError
from tests.engine.fake_engine import FakeEngine
from tests.engine.http.rig import Rig, answer, running
from tests.engine.http.test_bad_requests import check

USER = {"role": "user", "content": "hi"}


def nested(depth: int) -> bytes:
    """An object with lists in it, *depth* levels in all."""
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def test_depth_is_counted_exactly() -> None:
    """The deepest that is allowed is read; one level more is not, in lists and in objects."""
    assert parse_json(nested(MAX_DEPTH))
    for body in (nested(MAX_DEPTH + 1), b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1)):
        with pytest.raises(InvalidRequestError, match=f"deeper than {MAX_DEPTH} levels"):
            parse_json(body)


def test_many_shallow_members_are_not_deep() -> None:
    """Only what lies inside one another counts."""
    assert parse_json(b'{"a": [' + b"[]," * 5000 + b"{}]}")


@pytest.mark.parametrize(
    ("path", "body", "limit"),
    [
        ("/v1/chat/completions", {"messages": [USER] * (MAX_MESSAGES + 1)}, MAX_MESSAGES),
        ("/tokenize", {"messages": [USER] * (MAX_MESSAGES + 1)}, MAX_MESSAGES),
        ("/v1/completions", {"prompt": ["a"] * (MAX_PROMPTS + 1)}, MAX_PROMPTS),
        ("/v1/completions", {"prompt": "a", "stop": ["a"] * 17}, MAX_STOP_STRINGS),
        ("/v1/completions", {"prompt": "a", "stop": "a" * 513}, 512),
        ("/v1/completions", {"prompt": "a" * 1_000_000}, 1_000_000),
    ],
    ids=["messages", "messages to tokenise", "prompts", "stops", "stop", "bytes"],
)
def test_the_message_names_the_limit(rig: Rig, path: str, body: dict[str, Any], limit: int) -> None:
    """So that a caller knows what would pass."""
    assert str(limit) in check(rig.post(path, json=body))["message"]


def test_a_byte_order_mark_is_passed_over() -> None:
    """Windows tools send one."""
    assert parse_json(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


def test_a_compressed_body_is_refused_by_that_name() -> None:
    """That a byte is not UTF-8 helps nobody."""
    with pytest.raises(InvalidRequestError, match="it is compressed; send it as it is"):
        parse_json(gzip.compress(b'{"a": 1}'))


def test_a_body_that_trickles_in_is_cut_off() -> None:
    """408, and the connection closes; a caller who is quick is served meanwhile."""
    with running(FakeEngine(lambda r: answer("ok")), body_timeout_s=0.3) as rig:
        sock = rig.connect()
        sock.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
        start_s = time.monotonic()
        assert rig.chat().status_code == 200
        reply = b""
        while chunk := sock.recv(4096):
            reply += chunk
        took_s = time.monotonic() - start_s
        sock.close()

    assert reply.startswith(b"HTTP/1.1 408")
    assert b'"code": "body_too_slow"' in reply
    assert b"connection: close" in reply.lower()
    assert 0.2 < took_s < 3


def test_the_slow_body_is_counted() -> None:
    """Among the refused requests, by its reason."""
    with running(FakeEngine(lambda r: answer("ok")), body_timeout_s=0.05) as rig:
        with rig.connect() as sock:
            sock.sendall(
                b"POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            assert sock.recv(4096).startswith(b"HTTP/1.1 408")
        assert 'reason="body_too_slow"} 1.0' in rig.get("/metrics").text
