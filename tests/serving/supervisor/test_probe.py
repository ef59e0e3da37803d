"""Health questions over a real socket, and CPU time of a real process."""

import asyncio
import os
import socket
import time

import pytest

from failsoft.serving.supervisor.probe import answer_of, ask_health, cpu_seconds
from failsoft.serving.supervisor.watch import Answer
from tests.engine.fake_engine import FakeEngine
from tests.engine.http.rig import ids_of, running, wait_until


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nanything", "ready"),
        (b'HTTP/1.1 503 X\r\n\r\n{"reason": "stuck"}', "stuck"),
        (b'HTTP/1.1 503 X\r\n\r\n{"reason": "failing"}', "failing"),
        (b'HTTP/1.1 503 X\r\n\r\n{"reason": "engine_dead"}', "engine_dead"),
        (b'HTTP/1.1 503 X\r\n\r\n{"reason": "draining"}', "not_ready"),
        (b'HTTP/1.1 503 X\r\n\r\n{"reason": ["stuck"]}', "not_ready"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n<html>", "not_ready"),
        (b"SSH-2.0-OpenSSH\r\n", "silent"),
        (b"", "silent"),
    ],
)
def test_a_reply_is_understood(reply: bytes, answer: Answer) -> None:
    """By its status, and by the reason that our engine gives."""
    assert answer_of(reply) == answer


def test_the_real_server_is_asked() -> None:
    """Without its key; ready first, then stuck."""
    engine = FakeEngine(lambda request: ids_of("x" * 60), step_s=0.002)
    with running(engine, stuck_after_s=0.1, api_key="secret") as rig:
        url = f"{rig.url}/health/ready"
        assert asyncio.run(ask_health(url, timeout_s=5)) == "ready"
        engine.is_frozen = True
        rig.client.headers["authorization"] = "Bearer secret"

        async def ask() -> str:
            posting = asyncio.to_thread(rig.chat)
            task = asyncio.create_task(posting)
            until_s = time.monotonic() + 5
            answer = ""
            while answer != "stuck" and time.monotonic() < until_s:
                answer = await ask_health(url, timeout_s=5)
            engine.is_frozen = False
            await task
            return answer

        assert asyncio.run(ask()) == "stuck"


def test_who_accepts_and_says_nothing_is_silent() -> None:
    """As a stopped process does: its kernel still takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/health/ready"
        started_s = time.monotonic()

        assert asyncio.run(ask_health(url, timeout_s=0.1)) == "silent"
        assert time.monotonic() - started_s < 2

    assert asyncio.run(ask_health(url, timeout_s=5)) == "silent"


def test_cpu_time_grows_with_work() -> None:
    """And is None for nobody."""
    before = cpu_seconds(os.getpid())
    assert before is not None

    def has_grown() -> bool:
        now = cpu_seconds(os.getpid())
        assert now is not None
        return now > before + 0.02

    assert wait_until(has_grown, timeout_s=20)
    assert cpu_seconds(2**22 + 1) is None
