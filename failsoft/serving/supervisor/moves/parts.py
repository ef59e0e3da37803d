"""What every move works with, and how one is over before it came through."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from failsoft.config.run_files import run_folder
from failsoft.fallback.discovery import EngineFinder, RunningEngine
from failsoft.pin_records import MoveState
from failsoft.serving.supervisor.keeper import Keeper, Surroundings
from failsoft.serving.supervisor.moves.desk import PinDesk
from failsoft.serving.supervisor.moves.rules import MoveRules
from failsoft.serving.supervisor.moves.standing import Standing
from failsoft.serving.supervisor.plan import ChildPlan, Plans
from failsoft.serving.supervisor.roster import Roster

_SETTINGS = "settings.candidate."


class KeepTrial(Protocol):
    """Starts an engine that is on trial."""

    def __call__(self, plan: ChildPlan, *, on_ready: Callable[[Keeper], None]) -> Keeper:
        """Start one."""


class Fingerprint(Protocol):
    """Compares what a running engine answers with what is known of its version."""

    def __call__(
        self, engine: RunningEngine, digest: str, *, is_awaited: bool
    ) -> Awaitable[Mapping[str, object]]:
        """Return what to keep as proof; *is_awaited*: its slot has no engine until this is over.

        Raises:
            TrialError: It is not what its digest says.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveParts:
    """What every move shares."""

    desk: PinDesk
    standing: Standing
    roster: Roster
    plans: Plans
    around: Surroundings
    rules: MoveRules
    finder: EngineFinder
    home: Path
    num_cores: int
    environ: Mapping[str, str] = field(repr=False)
    lifeline_fd: int
    keep_trial: KeepTrial
    fingerprint: Fingerprint
    keep_settings: Callable[[], None]
    """Writes what children read as `Standing` says it; raises OSError."""
    tell_children: Callable[[], object]
    """Has front and ops read it, and the engines follow it."""
    apply: Callable[[], None]
    """Does both where anything changed; a copy that cannot be written is said."""
    owner: str
    """Names this supervisor in the store."""
    needs_bytes: dict[str, int] = field(default_factory=dict)
    """By slot, what engines that load for a move will take."""


class MoveOverError(Exception):
    """The move ends here, before it switched.

    Attributes:
        state: How; None when another process went on with it.
        reason: Why, and what to do next.
    """

    def __init__(self, state: MoveState | None, reason: str) -> None:
        super().__init__(reason)
        self.state = state
        self.reason = reason


def candidate_settings(home: Path, slot: str) -> Path:
    """Return where the settings lie that an engine on trial for *slot* reads.

    A copy of their own: until the switch a restart of the old engine must find in
    `failsoft.run_state.accepted_settings` what it ran before.
    """
    return run_folder(home) / "processes" / f"{_SETTINGS}{slot}.toml"


def forget_candidates(home: Path) -> None:
    """Remove what moves of a supervisor that is gone left behind."""
    for path in (run_folder(home) / "processes").glob(f"{_SETTINGS}*"):
        path.unlink(missing_ok=True)
