"""One process: started with what it inherits, waited for, signalled.

Each child leads a process group of its own: Ctrl-C in a terminal reaches the supervisor
alone, and what a dead child had started itself can be swept up. Knows nothing of restarts.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from failsoft.serving.lifeline import VARIABLE as LIFELINE_VARIABLE
from failsoft.serving.supervisor.output import ChildOutput
from failsoft.serving.supervisor.text import Piece

CONFIG_EXIT = 2
"""Exit code of a process that will not run with these settings, however often it is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start a process."""

    argv: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Beside the supervisor's own environment; may hold a token."""
    fds: tuple[int, ...] = ()
    """Open files it inherits under their numbers."""
    niceness: int = 0
    """Added to the supervisor's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a process ended."""

    code: int | None
    """Negative for a signal; None when it could not be started."""
    last_line: str
    """The last thing it said; may be empty."""

    @property
    def words(self) -> str:
        """Return it in words that hold nothing the process said."""
        if self.code is None:
            return "it cannot be started"
        if self.code >= 0:
            return f"exit {self.code}"
        try:
            return f"exit {self.code} ({signal.Signals(-self.code).name})"
        except ValueError:
            return f"exit {self.code}"


class Child:
    """A running process; `start` makes one."""

    def __init__(self, process: asyncio.subprocess.Process, output: ChildOutput) -> None:
        self.pid = process.pid
        self._process = process
        self._output = output

    async def wait(self) -> Exit:
        """Return how it ended, once it has; what it had started is killed then."""
        code = await self._process.wait()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._output.close()
        return Exit(code=code, last_line=self._output.last_line)

    def send(self, number: signal.Signals) -> None:
        """Signal it; nothing happens when it is gone."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL it and all it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


async def start(
    launch: Launch,
    *,
    environ: Mapping[str, str],
    lifeline_fd: int,
    on_piece: Callable[[Piece], None],
    columns: int | None,
) -> Child | Exit:
    """Start a process and return it, or why it cannot be started.

    Its stdout goes nowhere: results belong to the supervisor's own.

    Args:
        launch: What to start.
        environ: The supervisor's environment.
        lifeline_fd: Read end of the pipe that ends it with the supervisor.
        on_piece: Told what it writes to stderr.
        columns: Width of the terminal that its stderr is to be; None gives it a pipe.
    """
    try:
        output = ChildOutput(on_piece, columns=columns)
    except OSError as exc:  # out of open files
        return Exit(code=None, last_line=str(exc))
    try:
        process = await asyncio.create_subprocess_exec(
            *launch.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=output.for_child,
            env={**environ, **launch.environ, LIFELINE_VARIABLE: str(lifeline_fd)},
            pass_fds=(lifeline_fd, *launch.fds),
            process_group=0,
        )
    except OSError as exc:
        output.start()
        output.close()
        return Exit(code=None, last_line=str(exc))
    output.start()
    if launch.niceness:
        # From here and not in the child before exec, which would fork the store's threads.
        with suppress(ProcessLookupError, PermissionError):
            own = os.getpriority(os.PRIO_PROCESS, 0)
            os.setpriority(os.PRIO_PROCESS, process.pid, own + launch.niceness)
    return Child(process, output)
