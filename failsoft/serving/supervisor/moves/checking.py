"""What is looked at before an engine of the target is started: its files, its memory.

The bytes are read and hashed by a child process, `failsoft versions check`: it may take
minutes, and it loads torch, which the supervisor never does.
"""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from failsoft.pin_records import PinnedVersion, Swap
from failsoft.serving.lifeline import VARIABLE as LIFELINE_VARIABLE
from failsoft.serving.supervisor.moves.trial import TrialError

_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What the child found."""

    digest: str
    """Of the version's manifest."""
    needs_bytes: int | None
    """Memory that its engine takes at least; None where that cannot be told."""
    available_bytes: int | None
    """Memory that processes may still take; None where nobody says."""


async def run_check(
    argv: Sequence[str], *, environ: Mapping[str, str], lifeline_fd: int
) -> CheckReport:
    """Run the check and return what it found; it is killed when nobody waits for it any more.

    Raises:
        TrialError: The target cannot be served; the words end with what to do.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**environ, LIFELINE_VARIABLE: str(lifeline_fd)},
            pass_fds=(lifeline_fd,),
            process_group=0,
        )
    except OSError as exc:
        raise TrialError(f"its check cannot be started: {exc}") from exc
    try:
        told, said = await process.communicate()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return read_report(told, said, code=process.returncode or 0)


def read_report(told: bytes, said: bytes, *, code: int) -> CheckReport:
    """Return what the child printed on stdout, or raise with what keeps the target from serving.

    Raises:
        TrialError: It ended badly, or found a problem.
    """
    try:
        document: Any = json.loads(told)
        problems, digest = list(map(str, document["problems"])), document["version_digest"]
        needs, available = document["needs_bytes"], document["available_bytes"]
    except (ValueError, LookupError, TypeError):
        lines = said.decode("utf-8", "replace").strip().splitlines()
        last = f": {lines[-1].strip()}" if lines else ""
        raise TrialError(f"its check ended with exit {code}{last}") from None
    if problems:
        raise TrialError("; ".join(problems))
    if not document.get("files_good") or not isinstance(digest, str):
        raise TrialError("its files do not verify; look with `failsoft versions verify`")
    return CheckReport(digest=digest, needs_bytes=needs, available_bytes=available)


def check_known_digest(target: PinnedVersion, digest: str) -> None:
    """Compare what the files are now with what they were when the target last ran.

    Raises:
        TrialError: They differ.
    """
    if target.digest is not None and target.digest != digest:
        raise TrialError(
            f"{target.name} is version {digest[:12]}… here by now, not the {target.digest[:12]}… "
            "that was asked for: its model or this machine's dtype changed; look with `failsoft "
            "versions show`, or pin it by a fresh `failsoft pin set`"
        )


def check_memory(report: CheckReport, *, swap: Swap, freed_bytes: int, taken_bytes: int) -> None:
    """Compare what the new engine needs with what there is.

    Args:
        report: What the check found.
        swap: Whether the old engine goes first.
        freed_bytes: What the old engine's end gives back.
        taken_bytes: What engines that are starting now will still take.

    Raises:
        TrialError: It is too little.
    """
    needs, available = report.needs_bytes, report.available_bytes
    if needs is None or available is None:
        return  # nobody knows; an engine that does not fit dies on trial
    beside = max(0, available - taken_bytes)
    alone = beside + freed_bytes
    if needs <= (beside if swap == "beside" else alone):
        return
    if needs <= alone:
        raise TrialError(
            f"it needs {needs / _MIB:.0f} MiB of memory and there are {beside / _MIB:.0f} beside "
            "the running engine; use `--swap stop-first`, which stops that one first while the "
            "ladder's other rungs answer"
        )
    raise TrialError(
        f"it needs {needs / _MIB:.0f} MiB of memory, and even with `--swap stop-first` there are "
        f"{alone / _MIB:.0f}; free some, or pin a smaller version"
    )


def private_bytes(pid: int | None, *, proc: Path = Path("/proc")) -> int:
    """Return the memory that the end of process *pid* gives back; 0 where that is not told."""
    if pid is None:
        return 0
    try:
        lines = (proc / str(pid) / "status").read_text().splitlines()
        (line,) = (line for line in lines if line.startswith("RssAnon:"))
        return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return 0
