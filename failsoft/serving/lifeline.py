"""Ends a process when the supervisor that started it is gone, however that one ended.

The supervisor alone holds the write end of a pipe whose read end every child inherits:
the kernel closes it even after ``kill -9``. Knows nothing of what the process does.
"""

import os
import signal
import threading
import time
from collections.abc import MutableMapping

from failsoft.errors import ConfigError

VARIABLE = "FAILSOFT_LIFELINE_FD"
"""Environment variable with the number of the inherited read end."""
GRACE_S = 10.0
"""Between SIGTERM, after which a process may finish what is open, and SIGKILL."""


def watch(environ: MutableMapping[str, str], *, grace_s: float = GRACE_S) -> None:
    """Start a daemon thread that ends this process once its supervisor is gone.

    The variable is taken out of *environ*: it means nothing to processes started from here.

    Args:
        environ: ``os.environ``; nothing is done when it lacks the variable.
        grace_s: Seconds from SIGTERM to SIGKILL.

    Raises:
        ConfigError: The variable names no open file.
    """
    value = environ.pop(VARIABLE, None)
    if value is None:
        return
    try:
        fd = int(value)
        os.fstat(fd)
    except (ValueError, OSError) as exc:
        raise ConfigError(
            key=VARIABLE, value=value, allowed="an inherited pipe; only `failsoft up` sets it"
        ) from exc
    os.set_inheritable(fd, False)
    threading.Thread(
        target=_wait_and_end, args=(fd, grace_s), name="failsoft-lifeline", daemon=True
    ).start()


def _wait_and_end(fd: int, grace_s: float) -> None:
    while os.read(fd, 1):
        pass
    _signal_all(signal.SIGTERM)
    time.sleep(grace_s)
    _signal_all(signal.SIGKILL)


def _signal_all(number: signal.Signals) -> None:
    """Signal this process, and what it started when it leads a group of its own."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), number)
    else:
        os.kill(os.getpid(), number)
