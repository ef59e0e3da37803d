"""Tells a closed terminal from a request to read the settings again: both are SIGHUP.

A supervisor in the foreground must end with its terminal, not go on unseen with its ports.
"""

import os
import signal

CHECK_S = 2.0
"""Between two looks at whether the terminal is still there."""


class Hangup:
    """Knows whether this process had a terminal a moment ago."""

    def __init__(self) -> None:
        ignores = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # started by nohup
        self.had_terminal = not ignores and has_terminal()

    def look(self) -> None:
        """Note a terminal that went without a signal, as after ``disown``."""
        self.had_terminal = self.had_terminal and has_terminal()

    @property
    def is_real(self) -> bool:
        """Whether a SIGHUP that comes now means that the terminal was closed."""
        return self.had_terminal and not has_terminal()


def has_terminal() -> bool:
    """Return whether this process has a controlling terminal that is open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
