"""What else used the processor while something was measured, from Linux's /proc.

One stray process costs an engine of two threads several times its speed, so a figure
without this is worth little on a shared machine.
"""

import os
import time
from pathlib import Path


class OtherCpu:
    """Counts from its making on."""

    def __init__(self) -> None:
        self._busy_s = _busy_s()
        self._own_s = time.process_time()
        self._started_s = time.monotonic()

    def share(self) -> float | None:
        """Return the share 0..1 of all cores that other processes used; None if unknown."""
        now_s = _busy_s()
        if now_s is None or self._busy_s is None:
            return None
        own_s = time.process_time() - self._own_s
        spent_s = (time.monotonic() - self._started_s) * (os.cpu_count() or 1)
        others = (now_s - self._busy_s - own_s) / max(spent_s, 1e-9)
        return min(1.0, max(0.0, others))


def _busy_s() -> float | None:
    """Return the seconds that all cores have been busy, or taken by the host."""
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    except (OSError, IndexError):
        return None
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, fields)
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
