"""Signals: a real process, drained or cut short, and its exit code."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import httpx2
import pytest

from failsoft.engine.http.server import base_url, bind
from failsoft.errors import ConfigError
from tests.engine.http.rig import events_of, raw_post, wait_until

BODY = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 100}


@dataclass(kw_only=True)
class Process:
    """A server in a process of its own."""

    popen: subprocess.Popen[str]
    url: str

    def stream(self) -> str:
        """Read a whole stream."""
        body = {**BODY, "stream": True}
        return httpx2.post(f"{self.url}/v1/chat/completions", json=body, timeout=20).text

    def wait(self) -> int:
        """Return the exit code."""
        return self.popen.wait(15)


@contextlib.contextmanager
def process(*, step_s: float, drain_s: float, hangs: bool = False) -> Iterator[Process]:
    """Start a server process; kill it if a test leaves it behind."""
    command = [sys.executable, "-m", "tests.engine.http.fake_server", str(step_s), str(drain_s)]
    command += ["hang"] if hangs else []
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, stdout=pipe, stderr=pipe) as popen:
        try:
            assert popen.stdout is not None
            yield Process(popen=popen, url=popen.stdout.readline().strip())
        finally:
            popen.kill()


def streams(started: Process, count: int) -> tuple[list[threading.Thread], list[str]]:
    """Open streams on threads and wait until they run."""
    texts: list[str] = []
    threads = [
        threading.Thread(target=lambda: texts.append(started.stream())) for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    gauge = f'num_requests_running{{model_name="tiny-instruct"}} {count}.0'
    assert wait_until(lambda: gauge in httpx2.get(f"{started.url}/metrics").text)
    return threads, texts


def test_sigterm_lets_streams_finish() -> None:
    """Not ready and 503 at once; three streams end whole; exit code 0, no traceback."""
    with process(step_s=0.04, drain_s=15) as started:
        threads, texts = streams(started, 3)

        started.popen.send_signal(signal.SIGTERM)

        ready = f"{started.url}/health/ready"
        assert wait_until(lambda: httpx2.get(ready).status_code == 503)
        assert httpx2.get(ready).json()["reason"] == "draining"
        refused = httpx2.post(f"{started.url}/v1/chat/completions", json=BODY)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_stopped")
        assert started.wait() == 0
        for thread in threads:
            thread.join()
        assert started.popen.stderr is not None
        assert started.popen.stderr.read() == ""

    assert [events_of(text)[-1] for text in texts] == ["[DONE]"] * 3


def test_what_outlives_the_drain_ends_in_an_error_event() -> None:
    """The process is gone soon after the drain's limit, long before a stream's end; exit code 0."""
    with process(step_s=0.1, drain_s=1) as started:
        threads, texts = streams(started, 3)
        start_s = time.monotonic()

        started.popen.send_signal(signal.SIGTERM)

        assert started.wait() == 0
        assert 1 <= time.monotonic() - start_s < 5
        for thread in threads:
            thread.join()

    lasts = [json.loads(events_of(text)[-1]) for text in texts]
    assert [last["error"]["code"] for last in lasts] == ["engine_stopped"] * 3


@pytest.mark.parametrize("num_signals", [1, 2])
def test_a_server_whose_engine_hangs_ends_and_says_so(num_signals: int) -> None:
    """One signal once waited forever; two cut the stream off and left a traceback."""
    with process(step_s=0.1, drain_s=0.5, hangs=True) as started:
        threads, texts = streams(started, 2)
        steps = re.compile(r"engine_steps_total\{.*\} ([3-9]|\d\d+)\.0")
        assert wait_until(
            lambda: steps.search(httpx2.get(f"{started.url}/metrics").text) is not None
        )
        start_s = time.monotonic()

        for _ in range(num_signals):
            started.popen.send_signal(signal.SIGTERM)
            time.sleep(0.1)

        assert started.wait() == 0
        # The drain, then a second each to flush and to close, then five for the engine.
        assert time.monotonic() - start_s < 10
        for thread in threads:
            thread.join()
        assert started.popen.stderr is not None
        assert started.popen.stderr.read() == ""

    lasts = [json.loads(events_of(text)[-1]) for text in texts]
    assert [last["error"]["code"] for last in lasts] == ["engine_stopped"] * 2


def test_a_second_signal_stops_at_once() -> None:
    """With a stream open and a minute of drain to go."""
    with process(step_s=0.1, drain_s=60) as started:
        host, port = started.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            body = json.dumps({**BODY, "stream": True}).encode()
            connection.sendall(raw_post("/v1/chat/completions", body))
            assert connection.recv(10)

            started.popen.send_signal(signal.SIGTERM)
            ready = f"{started.url}/health/ready"
            assert wait_until(lambda: httpx2.get(ready).status_code == 503)
            started.popen.send_signal(signal.SIGTERM)
            start_s = time.monotonic()

            assert started.wait() == 0
            assert time.monotonic() - start_s < 2
            assert started.popen.stderr is not None
            assert started.popen.stderr.read() == ""


def test_ctrl_c_drains_and_exits_130() -> None:
    """As every command does."""
    with process(step_s=0.01, drain_s=5) as started:
        started.popen.send_signal(signal.SIGINT)

        assert started.wait() == 130


def test_an_idle_connection_does_not_hold_up_the_end() -> None:
    """A client keeps its connection open for the next request."""
    with process(step_s=0.001, drain_s=1) as started, httpx2.Client() as client:
        client.get(f"{started.url}/health")
        started.popen.send_signal(signal.SIGTERM)

        assert started.wait() == 0


def test_a_taken_port_is_a_config_error() -> None:
    """One line that names the port and the way out."""
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        first.listen()

        with pytest.raises(ConfigError, match="--port") as caught:
            bind("127.0.0.1", port)

    assert (caught.value.key, caught.value.value) == ("port", port)


def test_an_unknown_host_is_a_config_error() -> None:
    """Not an address of this machine."""
    with pytest.raises(ConfigError):
        bind("192.0.2.1", 0)


@pytest.mark.parametrize(
    ("host", "expected"), [("127.0.0.1", "http://127.0.0.1:"), ("::1", "http://[::1]:")]
)
def test_the_url_reaches_the_server(host: str, expected: str) -> None:
    """IPv6 in brackets."""
    if host == "::1" and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        sock = bind(host, 0)
    except ConfigError:
        pytest.skip(f"{host} is no address of this machine")
    with sock:
        assert base_url(sock).startswith(expected)
