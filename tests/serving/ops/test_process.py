"""The ops process as the supervisor runs it: a real process, socket and signals."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from failsoft.engine.http.server import bind
from tests.dashboard.home import Home
from tests.dashboard.stand_in import HANG, StandIn

ROOT = Path(__file__).parents[3]


class Ops:
    """A running ops process."""

    def __init__(self, home: Home, *arguments: str, sock: socket.socket | None = None) -> None:
        command = [sys.executable, "-m", "failsoft", "ops", "--config", str(home.settings_path)]
        self.process = subprocess.Popen(
            [*command, *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT), "FAILSOFT_HOME": str(home.folder)},
            pass_fds=[sock.fileno()] if sock is not None else [],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def get(self, path: str, **options: Any) -> httpx2.Response:
        """Ask it once."""
        return httpx2.get(f"{self.url}{path}", timeout=10, trust_env=False, **options)

    def end(self, number: signal.Signals) -> tuple[int, float]:
        """Send a signal; return the exit code and the seconds it took."""
        begun_s = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(10), time.monotonic() - begun_s

    def close(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Return a home in which nothing else runs."""
    return Home(tmp_path)


@pytest.fixture
def ops(home: Home) -> Iterator[Ops]:
    """Return a running ops process on a port of its own choice."""
    process = Ops(home, "--port", "0")
    yield process
    process.close()


def test_it_serves_page_json_and_health_with_a_strict_policy(ops: Ops) -> None:
    """On loopback; the server does not tell what it is."""
    page, now, health = ops.get("/"), ops.get("/api/now"), ops.get("/health")

    assert ops.url.startswith("http://127.0.0.1:")
    assert "Not answering" in page.text
    assert now.json()["verdict"]["reason"] == "nothing runs; start it with `failsoft up`"
    assert health.json() == {"status": "live"}
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert "server" not in page.headers
    assert ops.get("/", headers={"host": "evil.example"}).status_code == 400


def test_it_serves_in_a_socket_that_it_was_given(home: Home) -> None:
    """A connection made before the process lives is answered once it does."""
    with bind("127.0.0.1", 0) as sock:
        sock.listen()
        early = socket.create_connection(sock.getsockname())
        early.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        ops = Ops(home, "--fd", str(sock.fileno()), sock=sock)

        answer = early.makefile("rb").read()

        early.close()
        ops.close()
    assert answer.startswith(b"HTTP/1.1 200 OK")


def test_sigterm_ends_it_at_once_with_0(ops: Ops) -> None:
    """It takes a tenth of a second; the rest is a loaded machine's slack."""
    code, seconds = ops.end(signal.SIGTERM)

    assert code == 0
    assert seconds < 3


def test_a_signal_during_the_start_does_not_kill(home: Home) -> None:
    """A reload may meet a process that only just begins; SIGHUP's own way is to kill it."""
    code = (
        "import os, signal, sys\n"
        "from failsoft.serving.ops.signals import Signals\n"
        "signals = Signals()\n"
        "os.kill(os.getpid(), signal.SIGHUP)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "print(signals.next(), signals.next(), {'flask', 'waitress'} & set(sys.modules))\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}

    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )

    assert done.stdout == "1 15 set()\n"


def test_ctrl_c_ends_it_with_130(ops: Ops) -> None:
    """As every command of ours."""
    assert ops.end(signal.SIGINT)[0] == 130


def test_sigterm_waits_for_no_slow_source(home: Home, ops: Ops) -> None:
    """A page that is being made, for up to 1.5 s, is given up: its reader asks again."""
    with StandIn(
        "front-token",
    ) as front:
        front.answers["/internal/status"] = HANG
        home.publish_front(front)
        reader = socket.create_connection(("127.0.0.1", int(ops.url.rpartition(":")[2])))
        reader.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until_s = time.monotonic() + 5
        while not front.num_asked and time.monotonic() < until_s:
            time.sleep(0.01)

        code, _ = ops.end(signal.SIGTERM)

        assert reader.recv(1) == b""  # whoever waits for the page sends it
        reader.close()
    assert front.num_asked == 1
    assert code == 0


def rungs_of(ops: Ops) -> list[str]:
    """Return the rungs that are shown now."""
    (ladder,) = ops.get("/api/now").json()["ladders"]
    return [rung["name"] for rung in ladder["rungs"]]


def test_sighup_reads_the_settings_again_and_a_bad_file_changes_nothing(
    home: Home, ops: Ops
) -> None:
    """The process lives through both, and says on stderr what is wrong."""
    good = home.settings_path.read_text()
    assert ops.process.stderr is not None
    home.settings_path.write_text("[ladders.chat]\nrungs = 3\n")
    ops.process.send_signal(signal.SIGHUP)
    said = ops.process.stderr.readline()
    after_bad = rungs_of(ops)

    home.settings_path.write_text(good.replace('"small", "cache"]', '"cache"]'))
    ops.process.send_signal(signal.SIGHUP)
    until_s = time.monotonic() + 5
    while (after_good := rungs_of(ops)) == after_bad and time.monotonic() < until_s:
        time.sleep(0.05)

    assert "the settings stay as they were: ladders.chat.rungs" in said
    assert after_bad == ["primary", "small", "cache"]
    assert after_good == ["primary", "cache"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--host", "0.0.0.0"], "loopback"),
        (["--fd", "99"], "inherited socket"),
    ],
)
def test_what_cannot_be_served_is_one_line_and_exit_2(
    home: Home, arguments: list[str], says: str
) -> None:
    """Before anything listens."""
    ops = Ops(home, *arguments)
    _, errors = ops.process.communicate(timeout=10)

    assert ops.process.returncode == 2
    assert says in errors
    assert len(errors.splitlines()) == 1
