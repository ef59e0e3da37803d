"""What a front tells the other processes of itself: the document of ``/internal/status``.

The front fills it in, whoever watches reads it; one JSON document, schema 1. Readers take
fields they do not know for what a later failsoft adds. Knows nothing of HTTP or of how a
front comes to know it. Stamps are UTC epoch milliseconds, durations seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from failsoft.run_state import Reload


@dataclass(frozen=True, slots=True, kw_only=True)
class LastError:
    """The last thing that went wrong on one rung."""

    at_ms: int
    outcome: str
    message: str
    """In words of ours; never a user's text or an endpoint's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RungFacts:
    """What is the same for who says how a rung stands and for who only judges it."""

    index: int
    name: str
    kind: Literal["engine", "endpoint", "cache"]
    slot: str | None = None
    """The local engine's slot; None for the others."""
    why_not: str | None = None
    breaker: str | None = None
    """closed, open or half_open; None for the cache, and where it is not known."""
    retry_in_s: float | None = None
    """Until a broken rung is tried again; None while it is not broken."""
    version_name: str | None = None
    """What runs in the slot, or what is pinned there; the model of an endpoint elsewhere."""
    version_digest: str | None = None
    last_error: LastError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RungStatus(RungFacts):
    """One rung of a ladder, by the front's own word."""

    can_serve: bool
    """Whether a call that came now would ask it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderStatus:
    """One ladder."""

    name: str
    budget_refused_total: int
    """Retries that its budget refused since the front started."""
    rungs: tuple[RungStatus, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontStatus:
    """The whole front."""

    schema: Literal[1] = 1
    pid: int
    started_at_ms: int
    is_draining: bool
    num_open_calls: int
    settings_read_at_ms: int
    last_reload: Reload | None = None
    """The last time it was told to read its settings again."""
    ladders: tuple[LadderStatus, ...]
    dropped_records: Mapping[str, int]
    """Records that the store did not keep, by kind."""
    store_trouble: str | None = None
    """Why the store takes no records now; they wait meanwhile. None when it takes them."""
