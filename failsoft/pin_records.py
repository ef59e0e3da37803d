"""Pins and their moves as frozen objects that cross parts.

A *pin* says which version a slot runs, a *move* is one change of it with a state machine kept
in the store. Nothing here acts or reads a clock. Stamps are UTC epoch milliseconds.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Swap = Literal["beside", "stop-first"]
"""``beside``: the new engine starts while the old one serves. ``stop-first``: where memory does
not hold both, the old one ends first and the ladder's other rungs answer meanwhile."""


class MoveKind(StrEnum):
    """Who wanted a move."""

    FILE = "file"
    """The settings file; it is noted, not executed: such a move is over as it begins."""
    SET = "set"
    """An operator, to any version."""
    ROLLBACK = "rollback"
    """An operator, back to a version that served before."""
    AUTOMATIC = "automatic"
    """A trigger; it insists on a target that is known to be good."""
    FOLLOW_FILE = "follow-file"
    """An operator, who gives a moved slot back to the settings file; it is noted like ``FILE``:
    the file says what is pinned already, so nothing else runs after it."""

    @property
    def is_by_file(self) -> bool:
        """Whether the slot follows the settings file after such a move."""
        return self in (MoveKind.FILE, MoveKind.FOLLOW_FILE)

    @property
    def goes_back(self) -> bool:
        """Whether its target is a version that held the slot before."""
        return self in (MoveKind.ROLLBACK, MoveKind.AUTOMATIC)


class MoveState(StrEnum):
    """How far a move is."""

    ASKED = "asked"
    CHECKING = "checking"
    """Files verify, memory suffices, the evidence for the target is looked at."""
    STOPPING = "stopping"
    """Under ``stop-first``: the old engine ends."""
    STARTING = "starting"
    WARMING = "warming"
    PROVING = "proving"
    """The running process reports its digest, and its fingerprint is compared."""
    SMOKING = "smoking"
    """It answers a few prompts."""
    SWITCHING = "switching"
    """The pin points at the new version; from here on a failure goes back to the old one."""
    DRAINING = "draining"
    """The old engine finishes what it has."""
    RESTORING = "restoring"
    """The move failed where the old engine does not run, and it is started again."""
    CONFIRMED = "confirmed"
    FAILED = "failed"
    ABORTED = "aborted"
    """An operator took it back before the switch."""
    UNDONE = "undone"
    """Its supervisor died before the switch, and the next one put things back."""

    @property
    def is_end(self) -> bool:
        """Whether nothing more happens to a move in this state."""
        return self in _ENDS

    @property
    def is_switched(self) -> bool:
        """Whether the pin points at the new version in this state."""
        return self in (MoveState.SWITCHING, MoveState.DRAINING, MoveState.CONFIRMED)


_ENDS = frozenset({MoveState.CONFIRMED, MoveState.FAILED, MoveState.ABORTED, MoveState.UNDONE})


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedVersion:
    """A version as a pin keeps it: enough to run it again when the settings forgot it."""

    name: str
    settings_json: str
    """Its table as the settings had it, paths absolute; the catalogue's entry as a table."""
    digest: str | None = None
    """Of its manifest; None until an engine or a check told it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """What one slot runs."""

    slot: str
    version: PinnedVersion
    is_moved: bool
    """Whether a move put it there; else it is the settings file's, and follows it."""
    move_id: str
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveAsk:
    """What somebody wants moved."""

    slot: str
    kind: MoveKind
    to: PinnedVersion
    who: str
    why: str
    swap: Swap = "beside"
    accept_unproven: bool = False
    """Whether a target without evidence, or with worse, is taken all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRollback:
    """A rollback that was asked for while a move had switched and was not over yet.

    Whoever carries that move out waits for nothing more, and its end is the rollback's beginning.
    """

    ask: MoveAsk
    move_id: str | None = None
    """The move it became; None before that, and where the pin was at its target by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveStep:
    """When a move entered a state."""

    state: MoveState
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PinMove:
    """One move, past or under way."""

    move_id: str
    """Rises with time."""
    slot: str
    kind: MoveKind
    left: PinnedVersion | None
    """What the slot ran when it was asked; None for a slot's first pin."""
    to: PinnedVersion
    who: str
    why: str
    swap: Swap
    accept_unproven: bool
    state: MoveState
    steps: tuple[MoveStep, ...]
    """Every state it was in, in order, this one included."""
    ended_at_ms: int | None
    owner: str | None
    """Which supervisor carries it out; None until one does."""
    abort_by: str | None
    """Who wants it taken back before its switch; None while nobody does."""
    reason: str | None
    """Why it did not come through, and what to do next; None while it does."""
    proof_json: str | None
    """What shows that the new version runs; None before there is anything."""
    rollback: WantedRollback | None = None
    """What is to follow it, asked for after its switch; None while nobody wants that."""

    @property
    def asked_at_ms(self) -> int:
        """When it was asked for."""
        return self.steps[0].at_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalScore:
    """What one eval run said of one version."""

    version_digest: str
    eval_set: str
    at_ms: int
    score: float
    """0..1, higher is better."""
    num_samples: int
