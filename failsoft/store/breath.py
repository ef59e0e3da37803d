"""How a thread that works for long lets the others of its process compute in between.

Python lets one thread compute at a time. A thread that wants to waits until the one that
does lets go of the interpreter's lock: by itself, or when asked after the switch interval of
5 ms. A driver lets go for each statement, but SQLite is done with one sooner than a waiting
thread wakes up, which then finds the lock taken and begins to wait anew.
"""

import sys
import time
from collections.abc import Callable

_WORK_S = 2e-4
"""How long a thread works between two breaths."""
_BREATH_S = 5e-5
"""A sleep lets go of the lock for longer than a waiting thread takes to wake; 0 does not."""


class Breath:
    """Paces one stretch of work, on the thread that works; clock and sleep in seconds."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._begun_s = clock()

    def take_when_due(self) -> None:
        """Let waiting threads compute when this one has worked for a while; call it often."""
        stretch_s = self._clock() - self._begun_s
        if stretch_s < _WORK_S:
            return
        # A longer one has let in whoever waited. Where a thread computes without end, every
        # breath costs this one another switch interval.
        if stretch_s < sys.getswitchinterval():
            self._sleep(_BREATH_S)
        self._begun_s = self._clock()
