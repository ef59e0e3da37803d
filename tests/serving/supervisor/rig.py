"""A running ``failsoft up`` over fake children, and what a test asks of it."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2

from failsoft.call_records import EventRecord
from failsoft.config.run_files import is_alive
from failsoft.config.settings import StoreConfig
from failsoft.run_state import ChildState, SupervisorState, read_supervisor
from failsoft.store.store import Store

SETTINGS = """
[versions.v1]
source = "file:v1.gguf"
[versions.v2]
source = "file:v2.gguf"
[versions.v3]
source = "file:v3.gguf"
[pins]
primary = "v1"
small = "v2"
[endpoints.primary]
pin = "primary"
[endpoints.small]
pin = "small"
[ladders.chat]
rungs = ["primary", "small", "cache"]
"""
ONE_ENGINE = SETTINGS.replace('"primary", "small", "cache"', '"primary"')

RESTART = {"first_s": 0.05, "cap_s": 0.2, "healthy_s": 60.0}
WATCH = {"every_s": 0.05, "hang_s": 60.0}
SHORT = {"timeout_s": 0.3, "hang_s": 1.0}
"""For tests of what hangs; on a busy machine others may seem to hang by them too."""
RULES = {"patience_s": 0.2, "handover_s": 0.05, "hurry_s": 0.3, "ops_niceness": 3}
MOVES = {"poll_s": 0.05, "retry_s": 0.05}


class Up:
    """One running supervisor."""

    def __init__(self, popen: "subprocess.Popen[str]", folder: Path) -> None:
        self.popen = popen
        self.folder = folder
        self.home = folder / "home"
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        if self.popen.stderr is None:  # it has a terminal
            return
        for line in self.popen.stderr:
            self.said.append(line.rstrip("\n"))

    @property
    def state(self) -> SupervisorState:
        """What its file tells."""
        state = read_supervisor(self.home)
        assert state is not None
        return state

    def child(self, name: str) -> ChildState | None:
        """One child, or None while there is none of that name."""
        state = read_supervisor(self.home)
        children = () if state is None else state.children
        return next((child for child in children if child.name == name), None)

    def wait_running(self, *names: str) -> None:
        """Wait until these children are ready."""

        def are_running() -> bool:
            return all(c is not None and c.phase == "running" for c in map(self.child, names))

        self.wait_for(are_running)

    def wait_back(self, name: str, old: int) -> None:
        """Wait until a child is ready that is another process than *old*."""

        def is_back() -> bool:
            child = self.child(name)
            return child is not None and child.phase == "running" and child.pid != old

        self.wait_for(is_back)

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Poll; fail with what was said."""
        end = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end, "\n".join(self.said)
            assert self.popen.poll() is None or condition(), "\n".join(self.said)
            time.sleep(0.01)

    def wait_said(self, words: str) -> None:
        """Wait for a line with *words*."""
        self.wait_for(lambda: any(words in line for line in self.said))

    def pid(self, name: str) -> int:
        """The process of a child that runs."""
        child = self.child(name)
        assert child is not None
        assert child.pid is not None
        return child.pid

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Signal a child; return its pid."""
        pid = self.pid(name)
        os.kill(pid, number)
        return pid

    def log(self) -> list[str]:
        """What the children did, in order."""
        path = self.folder / "log"
        return path.read_text().splitlines() if path.exists() else []

    def asks_front(self) -> int:
        """Ask the API's socket; return the pid that answers."""
        url = self.state.api_url.removesuffix("/v1")
        return int(httpx2.get(f"{url}/anything", timeout=10).headers["x-pid"])

    def reload(self, settings: str) -> None:
        """Write the settings file, SIGHUP, and wait until that was dealt with."""
        before = self.state.last_reload
        (self.folder / "failsoft.toml").write_text(settings)
        self.popen.send_signal(signal.SIGHUP)
        self.wait_for(lambda: self.state.last_reload != before)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Stop it and return its exit code."""
        self.popen.send_signal(number)
        code = self.popen.wait(15)
        self._reader.join(5)
        return code

    def events(self) -> list[EventRecord]:
        """What it recorded, oldest first; call after its end."""
        with Store(StoreConfig(url=f"sqlite:///{self.folder / 'failsoft.db'}")) as store:
            return store.reader.events()[::-1]


@contextlib.contextmanager
def running_up(
    folder: Path,
    *,
    settings: str = SETTINGS,
    children: dict[str, dict[str, Any]] | None = None,
    restart: dict[str, Any] | None = None,
    watch: dict[str, Any] | None = None,
    rules: dict[str, Any] | None = None,
    moves: dict[str, Any] | None = None,
    bugs: dict[str, int] | None = None,
    terminal: int | None = None,
) -> Iterator[Up]:
    """Yield a running supervisor; whatever it leaves behind is killed.

    With *terminal*, its stderr and its controlling terminal are that one.
    """
    (folder / "failsoft.toml").write_text(settings)
    told = {
        "folder": str(folder),
        "children": children or {},
        "restart": {**RESTART, **(restart or {})},
        "watch": {**WATCH, **(watch or {})},
        "rules": {**RULES, **(rules or {})},
        "moves": {**MOVES, **(moves or {})},
        "bugs": bugs or {},
    }
    with start_up(folder, told, terminal) as popen:
        up = Up(popen, folder)
        try:
            yield up
        finally:
            popen.kill()
            popen.wait(10)
            pids = [int(line.split()[2]) for line in up.log() if line.split()[1] == "start"]
            for pid in filter(is_alive, pids):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def start_up(folder: Path, told: dict[str, Any], terminal: int | None) -> "subprocess.Popen[str]":
    """Start ``failsoft up --port 0`` in *folder*."""
    root = Path(__file__).parents[3]
    env = {**os.environ, "PYTHONPATH": str(root), "FAILSOFT_HOME": str(folder / "home")}
    line = [sys.executable, "-m", "tests.serving.supervisor.fake_up", json.dumps(told)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*line, "up", "--port", "0"],
        cwd=folder,
        env=env,
        text=True,
        stdout=pipe,
        stderr=pipe if terminal is None else terminal,
        start_new_session=terminal is not None,
        preexec_fn=None if terminal is None else _take_terminal,
    )


def _take_terminal() -> None:
    """Make stderr the controlling terminal of the new session."""
    fcntl.ioctl(2, termios.TIOCSCTTY, 0)
