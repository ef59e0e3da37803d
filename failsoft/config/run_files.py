"""Small private files in failsoft's folder, by which its processes find each other.

They lie in ``<home>/run``, may be read by their owner only, and are replaced as a
whole by a rename. Knows nothing of what is in them.
"""

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def run_folder(home: Path) -> Path:
    """Return where the files of running processes are."""
    return home / "run"


def write_private_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write *content* to *path*, whole or not at all; only its owner may read it."""
    write_private(path, json.dumps(content))


def write_private(path: Path, text: str) -> None:
    """Write *text* to *path*, whole or not at all; only its owner may read it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)


def is_private(status: os.stat_result) -> bool:
    """Return whether a file is this user's and nobody else may read it."""
    return not stat.S_IMODE(status.st_mode) & 0o077 and status.st_uid == os.getuid()


def process_start(pid: int) -> int | None:
    """Return when process *pid* started, in ticks since the boot; None where nobody tells.

    Numbers of processes are given again, after a reboot or in a new container the very same
    ones; number and start together name one process. Ticks do not follow the wall clock.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name, in brackets, may hold spaces and brackets itself.
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def is_running(pid: int, started: int | None) -> bool:
    """Return whether *pid* is still the process that started at *started* (`process_start`).

    Where that is not known, now or then, any process of that number will do.
    """
    if not is_alive(pid):
        return False
    now = process_start(pid)
    return now is None or started is None or now == started


def is_alive(pid: int) -> bool:
    """Return whether there is a process *pid*, whoever owns it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
