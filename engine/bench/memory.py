"""Memory of this process and this machine, in bytes, from Linux's /proc where there is one."""

import resource
import sys
from pathlib import Path

from failsoft.engine.free_memory import kibibytes

_STATUS = Path("/proc/self/status")


def reset_peak_rss() -> None:
    """Begin to measure the peak anew; nothing happens where the system cannot."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_rss_bytes() -> int | None:
    """Return this process's largest resident size since `reset_peak_rss`, or since its start."""
    try:
        status = _STATUS.read_text()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return kibibytes(status, "VmHWM")


def total_bytes() -> int | None:
    """Return the machine's memory; None where nobody says."""
    try:
        return kibibytes(Path("/proc/meminfo").read_text(), "MemTotal")
    except OSError:
        return None
