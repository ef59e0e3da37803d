"""Takes a process's signals and hands them out one by one.

Loads nothing: a process takes its signals before it imports what it serves with, so that
one that comes early is heard later and does not kill.
"""

import queue
import signal
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Signals:
    """Takes `SIGNALS` from now on; make it on the main thread."""

    def __init__(self) -> None:
        self._arrived: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    def next(self) -> int:
        """Wait for the next one and return its number."""
        return self._arrived.get()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._arrived.put(number)
