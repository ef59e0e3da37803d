"""What a caller is told when it fails: statuses, OpenAI's error object, the stream's event."""

import json
from typing import Any

import pytest

from failsoft.call_records import AttemptOutcome
from failsoft.errors import (
    ClientClosedError,
    FrontStoppedError,
    IdempotencyRunningError,
    LadderExhaustedError,
    StreamInterruptedError,
)
from failsoft.fallback.failure import Action, Failure
from failsoft.serving.front.faults import fault_of_error
from tests.fallback.fault_server import FaultServer
from tests.serving.front.rig import FrontProcess, text_of


def error_of(reply: Any) -> dict[str, Any]:
    """The error object of a reply; it has OpenAI's four fields."""
    error: dict[str, Any] = reply.json()["error"]
    assert {"message", "type", "param", "code"} <= set(error)
    return error


def test_an_exhausted_ladder_carries_every_cause(
    shared: FrontProcess, server_a: FaultServer, server_b: FaultServer
) -> None:
    """And keeps the caller's library from retrying what the ladder has retried."""
    server_a.plan(default={"do": "status", "status": 500})
    server_b.plan(default={"do": "status", "status": 503, "headers": {"retry-after": "7"}})

    reply = shared.post(messages=[{"role": "user", "content": "SECRET exhausted"}])

    error = error_of(reply)
    assert (reply.status_code, error["code"], error["type"]) == (
        503,
        "ladder_exhausted",
        "server_error",
    )
    assert reply.headers["retry-after"] == "7"
    assert reply.headers["x-should-retry"] == "false"
    assert reply.headers["x-failsoft-attempts"] == "2"
    assert error["failsoft"]["call_id"] == reply.headers["x-request-id"]
    assert [a["outcome"] for a in error["failsoft"]["attempts"]] == [
        "http_status",
        "throttled",
        "cache_miss",
    ]
    assert "SECRET" not in reply.text


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_fault_before_the_first_text_is_a_status(
    shared: FrontProcess, server_a: FaultServer, server_b: FaultServer, is_stream: bool
) -> None:
    """A role chunk, then an error event: no 200 goes out."""
    for server in (server_a, server_b):
        server.plan(default={"do": "cut", "tokens": 0})

    reply = shared.post(
        stream=is_stream, messages=[{"role": "user", "content": f"early {is_stream}"}]
    )

    assert reply.status_code == 503
    assert error_of(reply)["code"] == "ladder_exhausted"


def test_everybodys_429_is_one(
    shared: FrontProcess, server_a: FaultServer, server_b: FaultServer
) -> None:
    """The caller's rate, not our room."""
    for server in (server_a, server_b):
        server.plan(default={"do": "status", "status": 429})

    reply = shared.post(headers={"x-failsoft-cache": "off"})

    assert reply.status_code == 429
    assert error_of(reply)["type"] == "rate_limit_error"


def test_a_deadline_that_passes_is_a_504(
    shared: FrontProcess, server_a: FaultServer, server_b: FaultServer
) -> None:
    """At the deadline, not after the sum of clocks."""
    for server in (server_a, server_b):
        server.plan(default="stall")

    reply = shared.post(headers={"x-failsoft-deadline-ms": "300", "x-failsoft-cache": "off"})

    assert reply.status_code == 504
    assert reply.elapsed.total_seconds() < 0.6


def test_a_refusal_comes_in_the_endpoints_own_words(
    shared: FrontProcess, server_a: FaultServer, server_b: FaultServer
) -> None:
    """Status, message, type and code; nobody else was asked."""
    server_a.plan({"do": "status", "status": 400, "code": "bad_thing", "type": "their_type"})

    reply = shared.post()

    error = error_of(reply)
    assert (reply.status_code, error["code"], error["type"]) == (400, "bad_thing", "their_type")
    assert error["message"] == "SECRET-PROMPT-ECHO"
    assert server_b.hits == 0


@pytest.mark.parametrize("how", ["eof", "done", "rst", "short", "json", "event"])
def test_a_cut_stream_ends_in_one_typed_event_and_the_connection(
    shared: FrontProcess, server_a: FaultServer, how: str
) -> None:
    """No [DONE]; what came before the cut is there."""
    server_a.plan({"do": "cut", "how": how})

    reply, events = shared.stream()

    assert reply.status_code == 200
    assert text_of(events[:-1]) == "A0 A1 A2 "
    error = json.loads(events[-1])["error"]
    assert error["code"] == "stream_interrupted"
    assert error["failsoft"]["num_tokens"] == 3
    assert error["failsoft"]["attempt_id"].startswith(reply.headers["x-request-id"])
    assert "SECRET" not in events[-1]


def test_a_broken_streams_connection_is_closed(shared: FrontProcess, server_a: FaultServer) -> None:
    """A caller that missed the event still sees that it was no ordinary end."""
    import socket

    from tests.engine.http.rig import raw_post

    server_a.plan({"do": "cut", "how": "eof"})
    port = int(shared.url.split(":")[2].split("/")[0])
    body = json.dumps({"messages": [{"role": "user", "content": "x"}], "stream": True}).encode()

    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(raw_post("/v1/chat/completions", body))
        received = b""
        while piece := connection.recv(65536):
            received += piece

    assert b"stream_interrupted" in received
    assert received.endswith(b"0\r\n\r\n")


BAD = [
    ({"x-failsoft-deadline-ms": "0"}, "1..86400000"),
    ({"x-failsoft-deadline-ms": "1.5"}, "1..86400000"),
    ({"x-failsoft-deadline-ms": "99999999999"}, "1..86400000"),
    ({"x-failsoft-fallback": "no"}, "on or off"),
    ({"x-failsoft-cache": "none"}, "on, off or refresh"),
    ({"x-failsoft-tenant": "a b"}, "1..128"),
    ({"x-failsoft-tenant": ""}, "1..128"),
    ({"idempotency-key": "k" * 256}, "1..255"),
]


@pytest.mark.parametrize(("headers", "allowed"), BAD, ids=lambda value: str(value)[:40])
def test_a_bad_header_is_named_with_value_and_range(
    shared: FrontProcess, server_a: FaultServer, headers: dict[str, str], allowed: str
) -> None:
    """400, and nobody was asked."""
    reply = shared.post(headers=headers)

    (name,) = headers
    error = error_of(reply)
    assert (reply.status_code, error["param"]) == (400, name)
    assert name in error["message"]
    assert allowed in error["message"]
    assert server_a.hits == 0


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"model": "gpt-5"}, 404, "model"),
        ({"model": 7}, 400, "model"),
        ({"messages": []}, 400, "messages"),
        ({"messages": "hi"}, 400, "messages"),
        ({"stream": "yes"}, 400, "stream"),
        ({"n": 0}, 400, "n"),
        ({"cache_salt": json.loads("[" * 500 + "]" * 500)}, 400, None),
    ],
)
def test_a_bad_body_names_its_field(
    shared: FrontProcess, body: dict[str, Any], status: int, param: str | None
) -> None:
    """Before any rung is asked; too deep a body has no one field, an unknown ladder a list."""
    reply = shared.post(**body)

    error = error_of(reply)
    assert (reply.status_code, error["param"]) == (status, param)
    assert param != "model" or "chat" in error["message"]


def test_a_body_that_cannot_be_read_is_refused_as_the_engine_does(shared: FrontProcess) -> None:
    """Not JSON, no object, too large."""
    post = shared.client.post
    head = {"content-type": "application/json"}

    replies = [
        post("/chat/completions", content=content, headers=head)
        for content in (b"{", b"[]", b" " * 1_000_001)
    ]

    assert [reply.status_code for reply in replies] == [400] * 3
    assert [error_of(reply)["code"] for reply in replies] == [
        "invalid_json",
        "invalid_json",
        "request_too_large",
    ]


def test_an_only_ladder_needs_no_name(shared: FrontProcess) -> None:
    """``model`` may be left out where it could mean one thing only."""
    assert shared.post(model=None).status_code == 200


def test_other_hosts_and_origins_are_refused(shared: FrontProcess) -> None:
    """As at the engine: a page that the user's browser opens reaches loopback too."""
    assert shared.post(headers={"host": "evil.example"}).status_code == 400
    assert shared.post(headers={"origin": "https://evil.example"}).status_code == 403


def test_what_a_second_try_may_mend_is_left_to_the_caller() -> None:
    """A key whose first call runs, a front that ends: asking again costs no rung."""
    running = fault_of_error(IdempotencyRunningError(retry_after_s=0.2), call_id="c1")
    stopped = fault_of_error(FrontStoppedError(retry_after_s=1.0))
    closed = fault_of_error(ClientClosedError())

    assert (running.status, stopped.status, closed.status) == (409, 503, 503)
    for fault in (running, stopped, closed):
        assert fault.headers is not None
        assert fault.headers["retry-after"] == "1"
        assert "x-should-retry" not in fault.headers
    assert running.headers is not None
    assert running.headers["x-request-id"] == "c1"


def test_a_wait_that_nobody_knows_is_a_second() -> None:
    """Retry-After is always there, and never 0."""
    error = LadderExhaustedError(
        ladder="chat", attempts=(), causes=(), status=503, retry_after_s=None
    )

    fault = fault_of_error(error)

    assert fault.headers is not None
    assert fault.headers["retry-after"] == "1"


def test_the_event_of_a_broken_stream_says_why() -> None:
    """The outcome's word, tokens and attempt; nothing of the text."""
    cause = Failure(outcome=AttemptOutcome.TIMEOUT_GAP, action=Action.STEP_DOWN, detail="late")
    error = StreamInterruptedError(text="SECRET", attempt_id="c1/0", num_tokens=2, cause=cause)

    event = fault_of_error(error, call_id="c1").event

    assert event.startswith(b"data: {")
    assert event.endswith(b"}\n\n")
    detail = json.loads(event.removeprefix(b"data: "))["error"]["failsoft"]
    assert detail == {
        "call_id": "c1",
        "attempt_id": "c1/0",
        "num_tokens": 2,
        "cause": "timeout_gap",
    }
    assert b"SECRET" not in event
