"""How many CPU threads each engine gets; measured in docs/adr/0020-threads-of-engines.md.

Knows nothing of engines but their number and place.
"""

import os
from collections.abc import Sequence
from pathlib import Path

_QUOTA_FILE = Path("/sys/fs/cgroup/cpu.max")
_RESERVE_FROM = 4
"""With this many cores one is left to the front, the engines' own event loops and ops."""
_RESERVE_TWO_FROM = 16
_FLOOR = 2
"""No engine gets fewer: alone at work on two cores, one thread would be half the speed."""


def threads_per_engine(*, num_cores: int, are_first: Sequence[bool]) -> list[int]:
    """Return each engine's threads.

    The engine of a ladder's first rung is usually the only busy one; while it is down the
    one below is. So a first rung gets all cores but what the other processes need, and a
    lower one half of that: speed grows less than its threads do, and when both are busy the
    lower one does not take the first one's cores. First rungs of several ladders are busy
    together and share. On 2 or 3 cores there is nothing to share out, every engine gets at
    least 2 threads: threads that wait sleep (ADR 4), so too many cost little and too few
    cost all the time.

    >>> threads_per_engine(num_cores=2, are_first=[True, False])
    [2, 2]
    >>> threads_per_engine(num_cores=8, are_first=[True, False, False])
    [7, 4, 4]
    >>> threads_per_engine(num_cores=64, are_first=[True, True, False])
    [31, 31, 16]

    Args:
        num_cores: Cores this process may use, at least 1.
        are_first: For each engine, whether it is the first model rung of some ladder.
    """
    reserve = (num_cores >= _RESERVE_FROM) + (num_cores >= _RESERVE_TWO_FROM)
    floor = min(num_cores, _FLOOR)
    first = max(floor, (num_cores - reserve) // max(1, sum(are_first)))
    lower = max(floor, (first + 1) // 2)
    return [first if is_first else lower for is_first in are_first]


def usable_cores(quota_file: Path = _QUOTA_FILE) -> int:
    """Return the cores that this process may use: its affinity, or its container's quota."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, min(cores, _quota(quota_file) or cores))


def _quota(file: Path) -> int | None:
    """Return a container's quota in whole cores, rounded up; None without one (cgroup v2)."""
    try:
        limit, period = file.read_text().split()
        return None if limit == "max" else -(-int(limit) // int(period))
    except (OSError, ValueError):
        return None
