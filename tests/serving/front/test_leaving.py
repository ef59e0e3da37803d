"""A caller who leaves costs nothing more: everything behind is cancelled at once."""

import json
import signal
import socket
import time
from typing import Any

import pytest

from failsoft.serving.front.answers import UNREAD_S
from tests.engine.http.rig import raw_post, wait_until
from tests.fallback.fault_server import Fault, FaultServer
from tests.serving.front.rig import FrontProcess

MAX_S = 0.1
SLOW: Fault = {"do": "ok", "tokens": 500, "gap_s": 0.02}


def send(shared: FrontProcess, *, deadline_ms: int = 5000, **body: Any) -> socket.socket:
    """Send a chat on a raw connection and read nothing."""
    port = int(shared.url.split(":")[2].split("/")[0])
    connection = socket.create_connection(("127.0.0.1", port), timeout=5)
    raw = json.dumps({"messages": [{"role": "user", "content": "x"}], **body}).encode()
    deadline = f"x-failsoft-deadline-ms: {deadline_ms}"
    connection.sendall(raw_post("/v1/chat/completions", raw, deadline))
    return connection


def has_call(shared: FrontProcess, server: FaultServer) -> bool:
    """Whether the server was asked."""
    return wait_until(lambda: server.hits == 1)


@pytest.mark.parametrize(
    ("stream", "plan"),
    [
        (True, {"do": "stall", "at": "silence"}),
        (True, {"do": "stall", "at": "role"}),
        (True, SLOW),
        (False, {"do": "stall", "at": "headers"}),
        (False, SLOW),
    ],
    ids=["before-head", "before-text", "mid-stream", "whole-before-text", "whole-mid-stream"],
)
def test_a_caller_who_leaves_takes_its_upstream_call_along(
    shared: FrontProcess, server_a: FaultServer, server_b: FaultServer, stream: bool, plan: Fault
) -> None:
    """Within 100 ms, and nobody else is asked; leading gateways ask up to twice as many anew."""
    server_a.plan(default=plan)
    connection = send(shared, stream=stream)
    assert has_call(shared, server_a)
    if plan is SLOW and stream:
        assert connection.recv(100)

    left_s = time.monotonic()
    connection.close()

    closed_s = server_a.wait_closed(1)
    assert closed_s is not None
    assert closed_s - left_s < MAX_S
    assert wait_until(lambda: shared.status()["num_open_calls"] == 0)
    assert (server_a.hits, server_b.hits) == (1, 0)


def test_a_caller_who_leaves_is_in_the_ledger(shared: FrontProcess, server_a: FaultServer) -> None:
    """As cancelled, which says nothing against the endpoint."""
    line = 'failsoft_calls_total{ladder="chat",outcome="cancelled",version=""}'
    before = shared.metric(line) or 0
    server_a.plan(default=SLOW)
    connection = send(shared, stream=True)
    assert connection.recv(100)

    connection.close()

    assert wait_until(lambda: shared.metric(line) == before + 1)
    assert shared.status()["ladders"][0]["rungs"][0]["breaker"] == "closed"


def test_the_last_of_those_who_share_a_call_ends_it(
    shared: FrontProcess, server_a: FaultServer
) -> None:
    """One leaves and the other reads on; then nobody is left."""
    server_a.plan(default=SLOW)
    first = send(shared, stream=True, temperature=0, tag=1)
    assert first.recv(100)
    second = send(shared, stream=True, temperature=0, tag=1)
    assert second.recv(100)

    first.close()
    assert second.recv(100)
    assert server_a.stats()["closed"] == []
    second.close()

    assert server_a.wait_closed(1) is not None
    assert server_a.hits == 1


def test_a_caller_who_reads_nothing_is_dropped_some_time_after_its_deadline(
    shared: FrontProcess, server_a: FaultServer
) -> None:
    """Its stream fills every buffer on the way and holds the endpoint up; not for ever."""
    chunk = {"choices": [{"index": 0, "delta": {"content": "x" * 60_000}}]}
    server_a.plan({"do": "events", "events": [chunk] * 150})
    connection = send(shared, deadline_ms=1000, stream=True, tag=2)
    assert connection.recv(100)
    began_s = time.monotonic()
    assert wait_until(lambda: shared.status()["num_open_calls"] == 1)

    assert wait_until(lambda: shared.status()["num_open_calls"] == 0)

    assert time.monotonic() - began_s > UNREAD_S
    connection.close()


def test_a_caller_who_leaves_after_a_long_request_is_noticed_too(
    shared: FrontProcess, server_a: FaultServer
) -> None:
    """A body of which 64 KiB lie ready holds its connection up; it stayed so, and hid the end."""
    long = json.dumps({"messages": [{"role": "user", "content": "x"}], "tag": "x" * 200_000})
    raw = raw_post("/v1/chat/completions", long.encode())
    head, _, body = raw.partition(b"\r\n\r\n")
    connection = send(shared, tag="x" * 900_000)  # after which the system keeps more of it ready
    assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    server_a.plan(default={"do": "stall"})
    connection.sendall(head + b"\r\n\r\n")
    assert wait_until(lambda: shared.status()["num_open_calls"] == 1)  # it waits for the body
    shared.popen.send_signal(signal.SIGSTOP)
    try:
        connection.sendall(body)
    finally:
        shared.popen.send_signal(signal.SIGCONT)
    assert has_call(shared, server_a)

    left_s = time.monotonic()
    connection.close()

    closed_s = server_a.wait_closed(1, timeout_s=0.5)
    assert closed_s is not None
    assert closed_s - left_s < MAX_S
