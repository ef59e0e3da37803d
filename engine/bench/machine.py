"""What a benchmark ran on: a figure without its machine says nothing. Loads no torch."""

import os
import platform
from pathlib import Path
from typing import Any

from failsoft import __version__
from failsoft.engine.bench.memory import total_bytes


def machine() -> dict[str, Any]:
    """Return what can be told about this machine in JSON's types; None where nobody says."""
    return {
        "cpu": _cpu_name() or platform.processor() or None,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "memory_bytes": total_bytes(),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "failsoft": __version__,
        "load_average_1m": os.getloadavg()[0],
    }


def _cpu_name() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, None)
