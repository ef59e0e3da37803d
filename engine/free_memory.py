"""How much memory processes may still take here, in bytes; knows nothing of torch.

The least of what the machine has left (``MemAvailable``) and of what each control group
over this process, version 1 or 2, still allows. As container runtimes count it, a group
uses what it holds less file pages that were not read lately: those make way.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple


class _Files(NamedTuple):
    """What a version of control groups calls its files."""

    limit: str
    usage: str
    inactive: str
    """Key in ``memory.stat``."""


_V1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = _Files("memory.max", "memory.current", "inactive_file")


def available_bytes(
    *, proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Return what processes may still take without swapping; None where nobody says.

    Args:
        proc: Where the kernel tells of processes.
        groups: Where control groups are mounted.
    """
    free = kibibytes(_read(proc / "meminfo"), "MemAvailable")
    left = [] if free is None else [free]
    for folder, files in _groups_of(_read(proc / "self" / "cgroup"), groups):
        allowed = _left_in(folder, files)
        if allowed is not None:
            left.append(allowed)
    return min(left, default=None)


def _groups_of(text: str, groups: Path) -> Iterator[tuple[Path, _Files]]:
    """Yield the folder of each control group over this process, its own first."""
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, files = groups, _V2
        elif "memory" in controllers.split(","):
            root, files = groups / "memory", _V1
        else:
            continue
        # In a container the path may be the host's, and only its end, the root, be there.
        for name in (PurePosixPath(path), *PurePosixPath(path).parents):
            yield root / str(name).lstrip("/"), files


def _left_in(folder: Path, files: _Files) -> int | None:
    """Return what the group at *folder* still allows; None when it sets no limit."""
    limit, usage = (_read(folder / name).strip() for name in (files.limit, files.usage))
    if not limit.isdigit() or not usage.isdigit():  # no such group, or "max"
        return None
    used = int(usage)
    for line in _read(folder / "memory.stat").splitlines():
        key, _, value = line.partition(" ")
        if key == files.inactive:
            used -= int(value)
    return max(0, int(limit) - max(0, used))


def kibibytes(text: str, name: str) -> int | None:
    """Return the bytes of line *name* in a text like ``/proc/meminfo``; None without one."""
    for line in text.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
