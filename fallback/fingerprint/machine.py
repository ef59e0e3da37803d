"""On which machine a version of ours computes: its numbers are comparable only there.

bfloat16 on a CPU that multiplies it in hardware is another arithmetic than on one that does not
(0.03 nats for SmolLM2, several times the noise of either), and another torch brings other
kernels. So a version's reference is kept for each machine that shares the store.
"""

import hashlib
import json
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_CPU_FIELDS = ("model name", "flags", "Features")
"""Of ``/proc/cpuinfo``: x86's two, and ARM's."""


def local_subject(digest: str) -> str:
    """Return what the reference of the version *digest* is kept under for this machine."""
    return f"{digest}@{machine_key()}"


@cache
def machine_key() -> str:
    """Return 12 hex digits: equal where processor and torch are of the same kind."""
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = ""
    said = json.dumps([platform.machine(), _processor(Path("/proc/cpuinfo")), torch])
    return hashlib.sha256(said.encode()).hexdigest()[:12]


def _processor(file: Path) -> list[str]:
    """Return what *file* says of the first processor; what Python knows where there is none."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0].splitlines()
    except OSError:
        return [platform.processor()]
    return [line for line in lines if line.partition(":")[0].strip() in _CPU_FIELDS]
