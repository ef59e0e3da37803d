"""Where a local engine listens: the file its supervisor writes and the ladder reads.

One JSON file per slot, ``<home>/run/<slot>.json`` (`failsoft.config.home`), mode 0600,
replaced as a whole by a rename:

    {"schema": 1, "slot": "primary", "url": "http://127.0.0.1:40123/v1",
     "token": "…", "pid": 4711, "version": "smollm2-v1",
     "version_digest": "…64 hex…", "max_model_len": 2048, "process_start": 81234}

``token``, ``version_digest``, ``max_model_len`` and ``process_start`` (`process_start` of
``pid``) may be null. A file that others
may read is refused: it holds the engine's token.

An engine that is to take over a slot, a *candidate*, publishes the same content in
``<home>/run/candidates/<slot>.json``, where no ladder looks, until `promote_candidate`
renames that file to the slot's.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from failsoft.config.run_files import (
    is_alive,
    is_private,
    is_running,
    process_start,
    run_folder,
    write_private_json,
)
from failsoft.errors import CandidateGoneError
from failsoft.run_state import ChildPhase, read_supervisor

SCHEMA = 1
IN_HAND: Mapping[ChildPhase, str] = {
    "starting": "is starting",
    "running": "has just ended",
    "waiting": "waits to be started again",
    "gave_up": "was given up",
    "stopping": "is stopping",
}
"""Phases of an engine that has not published itself, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningEngine:
    """One local engine that a supervisor started."""

    slot: str
    url: str
    """Base URL that ends in ``/v1``, on loopback."""
    pid: int
    version: str
    """Name of the version it serves: what its requests call the model."""
    token: str | None = field(default=None, repr=False)
    version_digest: str | None = None
    max_model_len: int | None = None
    """Prompt plus output tokens."""


def engine_file(home: Path, slot: str) -> Path:
    """Return where the engine of *slot* is published."""
    return run_folder(home) / f"{slot}.json"


def candidates_folder(home: Path) -> Path:
    """Return where engines that are to take over a slot are published."""
    return run_folder(home) / "candidates"


def candidate_file(home: Path, slot: str) -> Path:
    """Return where the candidate for *slot* is published."""
    return candidates_folder(home) / f"{slot}.json"


def publish_engine(home: Path, engine: RunningEngine, *, is_candidate: bool = False) -> None:
    """Write *engine*'s file, whole or not at all; only its owner may read it.

    Args:
        home: failsoft's folder.
        engine: What listens where.
        is_candidate: Whether ladders are not to find it before `promote_candidate`.
    """
    content = {"schema": SCHEMA, **asdict(engine), "process_start": process_start(engine.pid)}
    place = candidate_file if is_candidate else engine_file
    write_private_json(place(home, engine.slot), content)


def promote_candidate(home: Path, slot: str, pid: int) -> RunningEngine:
    """Put the candidate of process *pid* in the slot's place, in one step; return it.

    Ladders ask it from their next call on. Of the engine that had the place, if any, no file
    is left: only its process can still be ended. One caller at a time for each slot.

    Raises:
        CandidateGoneError: The candidate is another process's, has ended or cannot be read;
            the slot is as it was.
    """
    found = find_candidate(home, slot)
    if isinstance(found, str):
        raise CandidateGoneError(slot=slot, pid=pid, reason=found)
    if found.pid != pid:
        reason = f"it is process {found.pid} by now"
        raise CandidateGoneError(slot=slot, pid=pid, reason=reason)
    try:
        candidate_file(home, slot).replace(engine_file(home, slot))
    except FileNotFoundError as exc:
        reason = "it withdrew itself at this very moment"
        raise CandidateGoneError(slot=slot, pid=pid, reason=reason) from exc
    return found


def withdraw_engine(home: Path, engine: RunningEngine) -> None:
    """Remove *engine*'s file, unless another engine has taken the slot since.

    Whether it is a candidate still or was promoted does not matter.
    """
    # In the order in which `promote_candidate` moves it: the other way it could slip through.
    for path in (candidate_file(home, engine.slot), engine_file(home, engine.slot)):
        if _pid_in(path) == engine.pid:
            _unlink_own(path, engine.pid)


def _unlink_own(path: Path, pid: int) -> None:
    """Remove the file at *path*, and put it back if it became another process's meanwhile."""
    taken = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.rename(taken)
    except FileNotFoundError:
        return
    if _pid_in(taken) != pid:
        with suppress(FileExistsError):  # an even newer one, which counts
            os.link(taken, path)
    taken.unlink()


def _pid_in(path: Path) -> object:
    """Return whose file *path* is; None when it is gone or no engine's file."""
    try:
        return json.loads(path.read_text(encoding="utf-8")).get("pid")
    except (OSError, ValueError, AttributeError):
        return None


class EngineFinder:
    """Finds local engines; a file is read again only when it changed.

    Args:
        home: failsoft's folder.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._known: dict[str, tuple[tuple[int, int, int], RunningEngine]] = {}

    def find(self, slot: str) -> RunningEngine | str:
        """Return the engine of *slot*, or in words why there is none."""
        path = engine_file(self._home, slot)
        try:
            status = path.stat()
        except OSError:
            return _nobody(self._home, slot)
        stamp = (status.st_mtime_ns, status.st_ino, status.st_size)
        known = self._known.get(slot)
        if known is None or known[0] != stamp:
            read = _read(path, status)
            if isinstance(read, str):
                return read
            known = self._known[slot] = (stamp, read)
        if not is_alive(known[1].pid):
            return _died(slot)
        return known[1]


def find_candidate(home: Path, slot: str) -> RunningEngine | str:
    """Return the candidate for *slot*, or in words why there is none; reads its file each time."""
    path = candidate_file(home, slot)
    try:
        found = _read(path, path.stat())
    except OSError:
        return f"no candidate is published for slot {slot}"
    if isinstance(found, RunningEngine) and not is_alive(found.pid):
        return _died(slot)
    return found


def _nobody(home: Path, slot: str) -> str:
    """Return why no engine is published: callers read it too, who can start nothing.

    Only where no `failsoft up` has the slot in hand is there somebody who can.
    """
    supervisor = read_supervisor(home)
    if supervisor is None:
        return f"no engine is published for slot {slot}; start it with {_command(slot)}"
    phases = {child.name: child.phase for child in supervisor.children if child.slot == slot}
    how = "`failsoft up` has none for it"
    if phases.keys() - {slot}:  # one that leaves, or one on trial
        how = "it is being replaced"
    elif slot in phases:
        how = f"its engine {IN_HAND[phases[slot]]}"
    return f"no engine serves slot {slot} at this moment: {how}"


def _died(slot: str) -> str:
    return f"the engine of slot {slot} has died (its process is gone)"


def _command(slot: str) -> str:
    return f"`failsoft up`, or `failsoft engine serve --slot {slot}` alone"


def _read(path: Path, status: os.stat_result) -> RunningEngine | str:
    if not is_private(status):
        return f"{path.name} may be read by others; remove it, then run {_command(path.stem)}"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        engine = _parse(raw)
        # Looked at once for each file: at each call it would cost more than it is worth.
        has_died = not is_running(engine.pid, raw.get("process_start"))
        return _died(path.stem) if has_died else engine
    except (OSError, ValueError, TypeError, KeyError):
        return f"{path.name} is no engine file of schema {SCHEMA}; run {_command(path.stem)} again"


def _parse(raw: Mapping[str, Any]) -> RunningEngine:
    if raw["schema"] != SCHEMA:
        raise ValueError("another schema")
    texts = {name: str(raw[name]) for name in ("slot", "url", "version")}
    parts = urlsplit(texts["url"])  # whose port raises ValueError when there can be none
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("not a URL")
    limit = raw.get("max_model_len")
    return RunningEngine(
        **texts,
        pid=int(raw["pid"]),
        token=raw.get("token"),
        version_digest=raw.get("version_digest"),
        max_model_len=int(limit) if limit is not None else None,
    )
