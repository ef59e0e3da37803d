"""One supervisor for each of failsoft's folders, and a clean start after one was killed.

The lock is ``flock``: the kernel lets go of it however its holder dies. What a killed
supervisor leaves behind for some seconds, its children end by themselves
(`failsoft.serving.lifeline`); until then they may hold its ports.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from failsoft.config.run_files import is_alive, is_running, run_folder
from failsoft.errors import AlreadyRunningError, ConfigError
from failsoft.fallback.discovery import candidates_folder
from failsoft.run_state import read_last_children, read_supervisor
from failsoft.serving.lifeline import GRACE_S
from failsoft.serving.lifeline import VARIABLE as LIFELINE_VARIABLE

LEFTOVER_S = GRACE_S + 2.0
"""How long children of a killed supervisor are waited for: they are gone by then."""
_POLL_S = 0.1


@contextmanager
def sole_supervisor(home: Path) -> Iterator[None]:
    """Be the only supervisor of *home* for the length of the block.

    Raises:
        AlreadyRunningError: There is one; the error names its process and URL.
        ConfigError: *home* cannot be written to.
    """
    with _open_lock(home) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise _already_running(home, file.read()) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _open_lock(home: Path) -> TextIO:
    path = run_folder(home) / "processes" / "supervisor.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return open(path, "a+", encoding="utf-8", opener=_open_private)
    except OSError as exc:
        allowed = f"a folder that this user may write to ({exc.strerror})"
        raise ConfigError(key="FAILSOFT_HOME", value=str(home), allowed=allowed) from exc


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _already_running(home: Path, noted: str) -> AlreadyRunningError:
    state = read_supervisor(home)
    pid = int(noted) if noted.isdigit() else None
    url = state.api_url if state is not None and state.pid == pid else None
    return AlreadyRunningError(home=str(home), pid=pid, url=url)


def clean_up(
    home: Path,
    *,
    on_wait: Callable[[], None],
    limit_s: float = LEFTOVER_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait for what a killed supervisor left behind, then remove the files of the dead.

    Args:
        home: failsoft's folder; the caller holds its lock.
        on_wait: Called once if there is something to wait for.
        limit_s: Seconds to wait at most.
        clock: Monotonic seconds.
        sleep: Waits.
    """
    until_s = clock() + limit_s
    pids = [child.pid for child in read_last_children(home) if child.pid is not None]
    if any(map(_is_ours, pids)):
        on_wait()
    while any(map(_is_ours, pids)) and clock() < until_s:
        sleep(_POLL_S)
    for folder in (run_folder(home), run_folder(home) / "processes", candidates_folder(home)):
        _remove_stale(folder)


def _is_ours(pid: int) -> bool:
    """Whether *pid* is a supervisor's child that runs: its number may be another's by now."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return LIFELINE_VARIABLE.encode() in file.read()
    except FileNotFoundError:
        return not Path("/proc/self/environ").exists() and is_alive(pid)
    except OSError:
        return False


def _remove_stale(folder: Path) -> None:
    """Remove files of processes that are gone, half-written ones too.

    After a reboot their numbers may be others': an engine's file would have prompts and its
    token sent to whoever has its port now.
    """
    for path in folder.glob("*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            written = json.loads(path.read_text("utf-8"))
            if not is_running(int(written["pid"]), written.get("process_start")):
                path.unlink()
    for path in folder.glob("*.tmp"):
        pid = path.suffixes[-2].removeprefix(".") if len(path.suffixes) > 1 else ""
        if pid.isdigit() and not is_alive(int(pid)):
            with suppress(OSError):
                path.unlink()
