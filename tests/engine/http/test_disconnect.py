"""A caller that leaves frees the engine at once, wherever its request is."""

import json
import socket
import struct

import pytest

from failsoft.records import FinishReason
from tests.engine.fake_engine import FakeEngine
from tests.engine.http.rig import Rig, ids_of, make_served, raw_post, running, wait_until

ENDLESS = ids_of("word " * 4000)


def send_chat(rig: Rig, *, stream: bool) -> socket.socket:
    """Send a chat on a raw connection and do not read the answer."""
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": stream, "max_tokens": 5000}
    connection = rig.connect()
    connection.sendall(raw_post("/v1/chat/completions", json.dumps(body).encode()))
    return connection


def slam(connection: socket.socket) -> None:
    """Close with a reset, as a killed process or a lost phone does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def is_idle(engine: FakeEngine) -> bool:
    """Whether nothing runs or waits."""
    return engine.stats().num_running + engine.stats().num_waiting == 0


@pytest.mark.parametrize("leave", [slam, socket.socket.close], ids=["reset", "close"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_running_request_ends_when_its_caller_leaves(leave, stream: bool) -> None:  # type: ignore[no-untyped-def]
    """Within a second, with 5000 tokens to go; counted as aborted during decode."""
    engine = FakeEngine(lambda r: ENDLESS, step_s=0.002)
    with running(engine, make_served(max_model_len=8192)) as rig:
        connection = send_chat(rig, stream=stream)
        assert wait_until(lambda: engine.stats().num_steps > 3)

        leave(connection)

        assert wait_until(lambda: is_idle(engine), 1.0)
        assert engine.finished[0].finish_reason is FinishReason.ABORT
        assert engine.finished[0].num_output_tokens < 1000
        line = 'failsoft_requests_aborted_total{model_name="tiny-instruct",stage="decode"} 1.0'
        assert wait_until(lambda: line in rig.get("/metrics").text)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_queued_request_ends_when_its_caller_leaves(stream: bool) -> None:
    """It never costs a step; the one that runs goes on."""
    engine = FakeEngine(lambda r: ENDLESS, step_s=0.002, max_running=1)
    with running(engine, make_served(max_model_len=8192)) as rig:
        first = send_chat(rig, stream=True)
        assert wait_until(lambda: engine.stats().num_running == 1)
        second = send_chat(rig, stream=stream)
        assert wait_until(lambda: engine.stats().num_waiting == 1)

        slam(second)

        assert wait_until(lambda: engine.stats().num_waiting == 0, 1.0)
        assert engine.finished[0].num_output_tokens == 0
        assert engine.stats().num_running == 1
        line = 'failsoft_requests_aborted_total{model_name="tiny-instruct",stage="queued"} 1.0'
        assert wait_until(lambda: line in rig.get("/metrics").text)
        slam(first)


def test_a_caller_that_leaves_while_sending_harms_nobody(rig: Rig) -> None:
    """Half a body, then nothing."""
    connection = rig.connect()
    connection.sendall(raw_post("/v1/chat/completions", b"x" * 500)[:-100])

    slam(connection)

    assert rig.chat().status_code == 200


def test_a_caller_that_does_not_read_does_not_stop_the_engine() -> None:
    """The stream fills the socket's buffers; the engine finishes, others are served."""
    engine = FakeEngine(lambda r: ENDLESS)
    with running(engine, make_served(max_model_len=8192)) as rig:
        connection = rig.connect()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 5000}
        connection.sendall(raw_post("/v1/chat/completions", json.dumps(body).encode()))

        assert wait_until(lambda: bool(engine.finished), 10)
        assert rig.get("/health/ready").status_code == 200
        slam(connection)
