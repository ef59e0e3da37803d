"""What happens to the stage while callers call; later issues add scenes here.

A scene is stepped several times a second and acts when its time has come. Knows nothing of
callers or terminals. Units: seconds since the traffic began.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Protocol

from failsoft.serving.demo.stage import Stage

MIN_ALIVE_S = 10.0
"""An engine that is back answers this long at least: the way up is to be seen too."""


class Scene(Protocol):
    """One thing that goes wrong."""

    num_acts: int
    """How often it happened."""

    def step(self, stage: Stage, *, elapsed_s: float) -> str | None:
        """Act if it is time; return in words what was done, None when nothing was."""


class KillEngine:
    """Kills one engine with SIGKILL, again and again; it waits until the engine has come back.

    Args:
        slot: Whose engine.
        every_s: From one kill to the next; the first comes after half of it.
        wall: UTC epoch seconds.
    """

    def __init__(self, slot: str, *, every_s: float, wall: Callable[[], float] = time.time) -> None:
        self._slot = slot
        self._every_s = every_s
        self._wall = wall
        self._next_s = every_s / 2
        self.num_acts = 0

    def step(self, stage: Stage, *, elapsed_s: float) -> str | None:
        """Kill it if it is time and it runs."""
        if elapsed_s < self._next_s:
            return None
        engine = stage.engine(self._slot)
        if engine is None or engine.phase != "running" or engine.pid is None:
            return None
        if self._wall() - engine.since_ms / 1000 < min(MIN_ALIVE_S, self._every_s / 2):
            return None
        with contextlib.suppress(ProcessLookupError):
            os.kill(engine.pid, signal.SIGKILL)
        self._next_s = elapsed_s + self._every_s
        self.num_acts += 1
        return f"killed the engine of {self._slot} (SIGKILL to process {engine.pid})"
