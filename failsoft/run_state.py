"""What the processes of ``failsoft up`` tell the rest of the machine about themselves.

Files in ``<home>/run/processes``, private and replaced as a whole: ``front.json``,
written by the front while it serves, ``supervisor.json``, written at each change, and the
settings that run (`accepted_settings`).
Stamps are UTC epoch milliseconds. A file whose process is gone reads as None.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from failsoft.config.run_files import (
    is_private,
    is_running,
    process_start,
    run_folder,
    write_private_json,
)

SCHEMA = 1
_State = TypeVar("_State", "FrontState", "SupervisorState")

ChildKind = Literal["engine", "front", "ops"]
ChildPhase = Literal["starting", "running", "waiting", "gave_up", "stopping"]
"""``waiting``: it ended, and is started again after a backoff. ``gave_up``: it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontState:
    """Where the front listens."""

    pid: int
    url: str
    """Base URL that ends in ``/v1``."""
    token: str = field(repr=False)
    """Opens ``/internal/status``; made anew at each start of the front."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildState:
    """One process that the supervisor looks after."""

    name: str
    """Unique; an engine's is its slot."""
    kind: ChildKind
    phase: ChildPhase
    pid: int | None
    since_ms: int
    """When this phase began."""
    num_restarts: int = 0
    slot: str | None = None
    version: str | None = None
    """Name of the version that an engine runs."""
    last_exit: str | None = None
    """Why it last ended, in words; None while it never did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """The last time the settings were read again."""

    at_ms: int
    error: str | None
    """Why the old settings stayed; None when the new ones took over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorState:
    """What runs under one ``failsoft up``."""

    pid: int
    started_at_ms: int
    settings: str
    """Path of the settings file."""
    api_url: str
    ops_url: str
    children: tuple[ChildState, ...]
    last_reload: Reload | None = None
    unlike_file: tuple[str, ...] = ()
    """Slots that a move has pinned to something else than the settings file said when it was
    last read; it may say something else by now."""


def write_front(home: Path, state: FrontState) -> None:
    """Publish where the front listens."""
    _write(_path(home, "front"), state)


def write_supervisor(home: Path, state: SupervisorState) -> None:
    """Publish what runs."""
    _write(_path(home, "supervisor"), state)


def read_front(home: Path) -> FrontState | None:
    """Return where the front listens; None when none does."""
    return _read(_path(home, "front"), lambda raw: FrontState(**raw))


def read_supervisor(home: Path) -> SupervisorState | None:
    """Return what runs; None when no supervisor does."""
    return _read(_path(home, "supervisor"), _supervisor_of)


def withdraw_front(home: Path, pid: int) -> None:
    """Remove the front's file if it is still that of process *pid*."""
    if (state := read_front(home)) is not None and state.pid == pid:
        _path(home, "front").unlink(missing_ok=True)


def withdraw_supervisor(home: Path, pid: int) -> None:
    """Remove the supervisor's file if it is still that of process *pid*."""
    if (state := read_supervisor(home)) is not None and state.pid == pid:
        _path(home, "supervisor").unlink(missing_ok=True)


def _write(path: Path, state: FrontState | SupervisorState) -> None:
    content = {"schema": SCHEMA, "process_start": process_start(state.pid), **asdict(state)}
    write_private_json(path, content)


def _path(home: Path, name: str) -> Path:
    return run_folder(home) / "processes" / f"{name}.json"


def accepted_settings(home: Path) -> Path:
    """Return where the settings that `failsoft up` runs by are kept; there while it runs."""
    return run_folder(home) / "processes" / "settings.toml"


def read_last_children(home: Path) -> tuple[ChildState, ...]:
    """Return the children of the last supervisor, which may be gone, and so may they.

    Empty when there is no such file.
    """
    state = _parse(_path(home, "supervisor"), _supervisor_of, may_be_gone=True)
    return () if state is None else state.children


def _read(path: Path, parse: Callable[[dict[str, Any]], _State]) -> _State | None:
    return _parse(path, parse, may_be_gone=False)


def _parse(
    path: Path, parse: Callable[[dict[str, Any]], _State], *, may_be_gone: bool
) -> _State | None:
    try:
        if not is_private(path.stat()):
            return None
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw.pop("schema") != SCHEMA:
            return None
        started = raw.pop("process_start", None)
        return parse(raw) if may_be_gone or is_running(raw["pid"], started) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None  # absent, or written by another failsoft


def _supervisor_of(raw: Mapping[str, Any]) -> SupervisorState:
    reload = raw.get("last_reload")
    return SupervisorState(
        **{
            **raw,
            "children": tuple(ChildState(**child) for child in raw["children"]),
            "last_reload": None if reload is None else Reload(**reload),
            "unlike_file": tuple(raw.get("unlike_file", ())),
        }
    )
