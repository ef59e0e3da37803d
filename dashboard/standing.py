"""What an operator should know now: the frozen parts of one picture.

Knows nothing of where they come from (`failsoft.dashboard.sources`) or how they are
shown. A part that could not be measured is an `Unknown` with its reason: never a zero,
never an empty list. Stamps are UTC epoch milliseconds, durations seconds, ratios 0..1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Self

from failsoft.config.settings import CACHE_RUNG
from failsoft.fingerprint_status import FingerprintStanding
from failsoft.front_status import RungFacts, RungStatus
from failsoft.run_state import Reload, SupervisorState


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Stands where something could not be measured."""

    reason: str
    """Words, with the next step where there is one."""


class Answers(StrEnum):
    """Whether callers get answers now; in order of what to look at first."""

    NO = "no"
    UNKNOWN = "unknown"
    """It cannot be measured, so it is not green."""
    DEGRADED = "degraded"
    """Callers are answered, but not all of them by the first model."""
    YES = "yes"

    @property
    def severity(self) -> int:
        """0 is the worst."""
        return list(type(self)).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Is it answering, from where, since when, and why so."""

    answers: Answers
    reason: str
    """One clause without a full stop."""
    rung: str | None = None
    """Who answers first now; None when nobody does or it is not known."""
    version_name: str | None = None
    version_digest: str | None = None
    since_ms: int | None = None
    """When it began to be so; None when nothing tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung(RungFacts):
    """One rung as it stands."""

    can_serve: bool | None
    """Whether it would be asked and could answer; None when nobody can say."""

    @classmethod
    def told(cls, status: RungStatus) -> Self:
        """Return the rung as the front has it."""
        return cls(**{field.name: getattr(status, field.name) for field in fields(status)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How one ladder's calls of the last *window_s* seconds ended."""

    window_s: int
    replies: Mapping[str, int]
    """Complete replies by rung; all rungs of the ladder are there, and former ones as one."""
    num_failed: int
    """Calls that ended without a whole reply: no rung could, cut, or too late."""
    num_rejected: int
    """The caller's fault; no part of `num_calls`."""
    num_cancelled: int
    """The caller left; no part of `num_calls`."""

    @property
    def num_calls(self) -> int:
        """Calls that wanted an answer and stayed for it: what shares are shares of."""
        return sum(self.replies.values()) + self.num_failed

    def share(self, rung: str) -> float | None:
        """Return the share of calls that *rung* answered, 0..1; None without calls."""
        return self._ratio(self.replies.get(rung, 0))

    @property
    def failed_share(self) -> float | None:
        """The share of calls that got no whole reply, 0..1; None without calls."""
        return self._ratio(self.num_failed)

    def _ratio(self, num: int) -> float | None:
        return num / self.num_calls if self.num_calls else None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownWindow:
    """A window whose calls could not be counted."""

    window_s: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LastReply:
    """The newest complete reply."""

    rung: str
    at_ms: int
    """When its call began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What the store knows of one ladder's calls."""

    windows: tuple[Window | UnknownWindow, ...]
    """From short to long."""
    last_reply: LastReply | Unknown | None
    """None when the longest window holds none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """One ladder as it stands."""

    name: str
    verdict: Verdict
    rungs: tuple[Rung, ...]
    budget_refused_total: int | None
    """Retries that the budget refused since the front started; None when not known."""
    traffic: Traffic | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """The front as it tells of itself."""

    pid: int
    started_at_ms: int
    is_draining: bool
    num_open_calls: int
    settings_read_at_ms: int
    dropped_records: Mapping[str, int]
    """Records that it could not keep since it started, by kind; all zeros are left out."""
    store_trouble: str | None
    """Why its store takes no records now; None when it takes them."""
    last_reload: Reload | None
    """The last time it read its settings again; None when it never did, or does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """What one engine has to do."""

    num_running: int
    num_waiting: int
    kv_used_ratio: float | None
    """KV blocks that requests hold; None when it does not say."""
    why_not_ready: str | None
    """Its own word for why it takes no request now; None when it is ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One local engine."""

    slot: str
    pid: int | None
    version_name: str | None
    version_digest: str | None
    queue: Queue | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveUnderWay:
    """A pin that is being moved."""

    kind: str
    """Who wants it, in words."""
    to_name: str
    to_digest: str | None
    state: str
    state_since_ms: int
    asked_at_ms: int
    who: str
    why: str
    abort_by: str | None
    """Who wants it taken back; None while nobody does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveBehind:
    """Who put a pin where it is, or gave it back to the settings file."""

    kind: str
    """What was done, in words."""
    who: str
    why: str
    at_ms: int
    """When it was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDifference:
    """What the settings file says of a slot that a move has pinned to something else."""

    says: str
    """Name of the version; where it is the pinned one's, the file means another by it."""
    words: str
    """The whole of it in a line: who, when, why, and how to end it; of others' text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedSlot:
    """What the store says a slot runs."""

    slot: str
    version_name: str
    version_digest: str | None
    is_moved: bool
    """Whether a move put it there, and not the settings file."""
    by: MoveBehind | None
    """Who decided so; None where the settings file did by itself."""
    differs_from_file: FileDifference | Unknown | None
    """None where the settings file says the same, or decides."""
    since_ms: int
    move: MoveUnderWay | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Something that happened, or the same thing several times in a row."""

    kind: str
    subject: str
    at_ms: int
    """The last time."""
    first_at_ms: int
    num: int
    detail: str
    """Words of the last one; made by our own processes, but to be escaped like any text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The whole picture at one moment."""

    at_ms: int
    verdict: Verdict
    """Of the ladder that stands worst."""
    settings: str | None
    """Path of the settings file."""
    api_url: str | None
    ladders: tuple[Ladder, ...]
    """Empty when neither the front nor the settings name one."""
    supervisor: SupervisorState | Unknown
    front: Front | Unknown
    engines: tuple[Engine, ...]
    pins: tuple[PinnedSlot, ...] | Unknown
    """Of every slot that a `failsoft up` noted in the store, or moved."""
    fingerprints: tuple[FingerprintStanding, ...]
    """How each endpoint's weights stood at the last look at them; empty before the first."""
    dropped_24h: Mapping[str, int] | Unknown
    """Records dropped by all processes in the last 24 hours, by kind."""
    incidents: tuple[Incident, ...] | Unknown
    """The last ones, newest first."""


def is_model(rung: Rung) -> bool:
    """Whether *rung* writes new answers; a kept reply only answers what was asked before."""
    return rung.kind != CACHE_RUNG
