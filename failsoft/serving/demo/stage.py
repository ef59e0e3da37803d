"""A ``failsoft up`` of the demo's own: its state in a folder that goes with it.

Models are those of the user: the store's folders are linked, so that what is fetched for
the demo is there afterwards. Everything ends with the stage, and nothing outlives a demo
that was killed. Knows nothing of callers. Units: seconds.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from failsoft.config.home import HOME_VARIABLE, home_folder
from failsoft.config.schema import BUILT_IN_FILE
from failsoft.errors import DemoError
from failsoft.run_state import ChildState, SupervisorState, read_supervisor
from failsoft.serving.lifeline import VARIABLE as LIFELINE_VARIABLE

MODEL_FOLDERS = ("conversions", "dtypes", "locks", "models", "scratch", "sources")
"""What `failsoft.engine.models.store` keeps; a model is moved from one to the other by a
rename, so all are linked together."""

SHORT_CLOCKS = """
# The demo's own: clocks so short that a newcomer need not wait for them.
[ladders.chat.timeouts]
connect_s = 0.5
[ladders.chat.breaker]
min_calls = 4
window_s = 10
open_s = 1
[ladders.chat.retry]
base_s = 0.05
cap_s = 0.5
[store]
url = "sqlite:///failsoft.db"
"""

_STOP_S = 15.0
_POLL_S = 0.1
_LOG_LINES = 12


class Stage:
    """One ``failsoft up``; use it as a context manager.

    Args:
        environ: This process's environment; names the user's own models.
        command: What starts it; ``--config FILE --port 0`` is added.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        command: Sequence[str] = (sys.executable, "-m", "failsoft", "up"),
    ) -> None:
        self._environ = environ
        self._command = command
        self.home = Path()
        """Its failsoft folder."""
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline: int | None = None
        """A pipe that only this process holds open: without it all that it started ends."""

    def __enter__(self) -> Self:
        """Lay the folder out and start everything; it is not ready yet."""
        self.home = Path(tempfile.mkdtemp(prefix="failsoft-demo-"))
        try:
            self._link_models(home_folder(self._environ))
            settings = self.home / "failsoft.toml"
            settings.write_text(BUILT_IN_FILE.read_text("utf-8") + SHORT_CLOCKS, "utf-8")
            self._start(settings)
        except BaseException:
            shutil.rmtree(self.home, ignore_errors=True)
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop everything, and remove the folder."""
        try:
            self._stop()
        finally:
            shutil.rmtree(self.home, ignore_errors=True)

    def wait_until_ready(
        self, *, limit_s: float, on_wait: Callable[[tuple[ChildState, ...]], None]
    ) -> SupervisorState:
        """Wait until every process runs.

        Args:
            limit_s: A first start fetches and converts a model.
            on_wait: Told the processes again and again meanwhile.

        Raises:
            DemoError: It ended, gave up, or took too long.
        """
        deadline_s = time.monotonic() + limit_s
        while time.monotonic() < deadline_s:
            self.check()
            state = self.state()
            children = state.children if state is not None else ()
            if state is not None and children and all(c.phase == "running" for c in children):
                return state
            if any(child.phase == "gave_up" for child in children):
                raise self._error("a process of `failsoft up` gave up")
            on_wait(children)
            time.sleep(_POLL_S)
        raise self._error(f"`failsoft up` was not ready within {limit_s:g} s")

    def state(self) -> SupervisorState | None:
        """Return what runs; None while nothing was published."""
        return read_supervisor(self.home)

    def engine(self, slot: str) -> ChildState | None:
        """Return the engine of *slot*; None when there is none."""
        state = self.state()
        children = state.children if state is not None else ()
        return next((child for child in children if child.slot == slot), None)

    def check(self) -> None:
        """Raise when everything has ended by itself.

        Raises:
            DemoError: It ended; the error shows the end of its log.
        """
        assert self._process is not None
        if (code := self._process.poll()) is not None:
            raise self._error(f"`failsoft up` ended with exit code {code}")

    def _link_models(self, source: Path) -> None:
        for name in MODEL_FOLDERS:
            (source / name).mkdir(parents=True, exist_ok=True)
            (self.home / name).symlink_to(source / name, target_is_directory=True)

    def _start(self, settings: Path) -> None:
        reading, self._lifeline = os.pipe()
        environ = {**self._environ, HOME_VARIABLE: str(self.home), LIFELINE_VARIABLE: str(reading)}
        try:
            with (self.home / "log").open("wb") as log:
                self._process = subprocess.Popen(  # noqa: S603 - our own command
                    [*self._command, "--config", str(settings), "--port", "0"],
                    env=environ,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=[reading],
                    start_new_session=True,  # Ctrl-C is this process's to handle, in order
                )
        finally:
            os.close(reading)

    def _stop(self) -> None:
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            pass
        finally:  # Ctrl-C again too: what still ran would lay the folder out anew
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if self._lifeline is not None:
                os.close(self._lifeline)
                self._lifeline = None

    def _error(self, what: str) -> DemoError:
        try:
            lines = (self.home / "log").read_text("utf-8", "replace").splitlines()
        except OSError:
            lines = []
        return DemoError(what, log=tuple(lines[-_LOG_LINES:]))
