"""A real ``failsoft up`` under test: its own home, the user's models, its processes by name."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from failsoft.config.home import home_folder
from failsoft.run_state import SupervisorState, read_front, read_supervisor

START_S = 300.0
STOP_S = 60.0
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class UpSession:
    """One running ``failsoft up``."""

    process: "subprocess.Popen[str]"
    home: Path
    api_url: str
    """Ends in ``/v1``."""
    log: Path
    """What it wrote to stderr."""

    @property
    def root_url(self) -> str:
        """The front, without ``/v1``."""
        return self.api_url.removesuffix("/v1")

    def state(self) -> SupervisorState:
        """Return what the supervisor says runs."""
        return wait_for(lambda: read_supervisor(self.home), 10, "a supervisor's file")

    def engine_pid(self, slot: str) -> int:
        """Return the process that has published itself as the engine of *slot*."""
        path = self.home / "run" / f"{slot}.json"
        return int(json.loads(path.read_text())["pid"])

    def front_pid(self) -> int:
        """Return the process that answers."""
        return wait_for(lambda: read_front(self.home), 10, "a front's file").pid

    def wait_running(self, *names: str, limit_s: float = START_S) -> None:
        """Wait until the processes called *names* are ready."""

        def are_ready() -> bool | None:
            phases = {child.name: child.phase for child in self.state().children}
            return all(phases.get(name) == "running" for name in names) or None

        wait_for(are_ready, limit_s, f"{', '.join(names)} to run")

    def kill(self, slot: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to the engine of *slot*; return its process."""
        pid = self.engine_pid(slot)
        os.kill(pid, number)
        return pid


def wait_for(look: Callable[[], _Found | None], limit_s: float, what: str) -> _Found:
    """Return what *look* finds once it finds something.

    Raises:
        RuntimeError: It found nothing for *limit_s*.
    """
    until_s = time.monotonic() + limit_s
    while time.monotonic() < until_s:
        try:
            found = look()
        except (OSError, ValueError, KeyError):
            found = None
        if found is not None:
            return found
        time.sleep(0.02)
    raise RuntimeError(f"waited {limit_s:g} s for {what}")


@contextmanager
def running_up(
    *arguments: str,
    environ: dict[str, str] | None = None,
    slots: tuple[str, ...] = (),
    folder: Path | None = None,
) -> Iterator[UpSession]:
    """Yield a ``failsoft up`` on a free port; it is ended with SIGTERM.

    Args:
        *arguments: More of its command line.
        environ: More environment.
        slots: Engines to wait for before it is handed out.
        folder: Where its home is, which may have been another's before; None makes one.
    """
    with tempfile.TemporaryDirectory() as made:
        place = folder or Path(made)
        home = place / "home"
        if not home.exists():
            home.mkdir()
            share_models(home)
        log = place / "stderr"
        command = [sys.executable, "-m", "failsoft", "up", "--port", "0", *arguments]
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, **(environ or {}), "FAILSOFT_HOME": str(home)},
                text=True,
            )
        try:
            assert process.stdout is not None
            api_url = process.stdout.readline().strip()
            if not api_url:
                raise RuntimeError(f"failsoft up ended: {log.read_text()[-2000:]}")
            session = UpSession(process, home, api_url, log)
            session.wait_running("front", *slots)
            yield session
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def share_models(home: Path) -> None:
    """Let *home* use the model store that the user's own folder has."""
    own = home_folder(os.environ)
    for name in ("models", "conversions", "sources", "dtypes", "locks", "scratch"):
        (own / name).mkdir(parents=True, exist_ok=True)
        (home / name).symlink_to(own / name)
