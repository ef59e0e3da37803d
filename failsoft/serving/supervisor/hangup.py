"""Tells a closed terminal from a request to read the settings again: both are SIGHUP.

A supervisor in the foreground must end with its terminal, not go on unseen with its ports.
"""

import os
import signal
from collections.abc import Callable

CHECK_S = 2.0
"""Between two looks at whether the terminal is still there."""
_LOOKS_TO_FORGET = 2
"""The signal comes after the loss, once the shell has heard of it: one look may fall between."""


def has_terminal() -> bool:
    """Return whether this process has a controlling terminal that is open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


class Hangup:
    """Knows whether this process had a terminal a moment ago.

    Args:
        is_there: Whether the terminal is there now.
    """

    def __init__(self, is_there: Callable[[], bool] = has_terminal) -> None:
        ignores = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # started by nohup
        self._is_there = is_there
        self._looks_left = _LOOKS_TO_FORGET if not ignores and is_there() else 0

    def look(self) -> None:
        """Note a terminal that went without a signal, as after ``disown``."""
        if self._looks_left and not self._is_there():
            self._looks_left -= 1

    @property
    def is_real(self) -> bool:
        """Whether a SIGHUP that comes now means that the terminal was closed."""
        return self._looks_left > 0 and not self._is_there()
