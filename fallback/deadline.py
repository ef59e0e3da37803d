"""One absolute deadline over a call, and the four clocks it leaves one attempt.

Units: monotonic seconds. Each hop gets the smaller of its own slice and what
remains; before its first token an upper rung also leaves room for the rungs
below it, because until then nothing is lost by going on.
"""

from collections.abc import Callable
from dataclasses import dataclass

from failsoft.config.settings import TimeoutConfig

CACHE_RESERVE_S = 0.05
"""Kept for a cached rung below: one read of the store."""
MAX_RESERVE_RATIO = 0.5
"""Of what remains, kept for the model rungs below at most, and while their speed is unknown."""
EVIDENCE_FLOOR_S = 1.0
EVIDENCE_TIMES_TYPICAL = 4.0
"""Silence this many times the usual first token is evidence even if the caller cut it short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """When a call must be over."""

    at_s: float
    clock: Callable[[], float]

    @property
    def remaining_s(self) -> float:
        """Seconds left; below 0 once it passed."""
        return self.at_s - self.clock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """The clocks of one attempt; durations but for *until_s*."""

    connect_s: float
    first_token_s: float
    """From the attempt's start; cut to leave room for the rungs below."""
    gap_s: float
    until_s: float
    """Absolute end of the attempt."""
    is_deadline: bool
    """Whether *until_s* is the call's deadline and not the attempt's own total clock."""


def clocks_for(
    timeouts: TimeoutConfig, *, deadline: Deadline, reserve_s: float, cache_below: bool
) -> Clocks:
    """Return the clocks of an attempt that starts now.

    Args:
        timeouts: The ladder's own slices.
        deadline: The call's.
        reserve_s: Kept for the model rungs below, in seconds; infinity when not known.
        cache_below: Whether a cached rung stands below.
    """
    now_s = deadline.clock()
    remaining_s = deadline.at_s - now_s - (CACHE_RESERVE_S if cache_below else 0.0)
    until_s = now_s + remaining_s
    total_s = timeouts.total_s
    is_deadline = total_s is None or total_s >= remaining_s
    if total_s is not None and not is_deadline:
        until_s = now_s + total_s
    room_s = remaining_s - min(reserve_s, MAX_RESERVE_RATIO * remaining_s)
    return Clocks(
        connect_s=min(timeouts.connect_s, room_s),
        first_token_s=min(timeouts.first_token_s, room_s),
        gap_s=timeouts.gap_s,
        until_s=until_s,
        is_deadline=is_deadline,
    )


def is_silence_evidence(
    waited_s: float, *, first_token_s: float, typical_ttft_s: float | None
) -> bool:
    """Return whether *waited_s* of silence tells of the endpoint and not of a tiny deadline.

    Args:
        waited_s: How long the attempt waited for its first token.
        first_token_s: The ladder's configured clock, uncut.
        typical_ttft_s: The endpoint's usual first token; None when not known.
    """
    enough_s = first_token_s
    if typical_ttft_s is not None:
        usual_s = max(EVIDENCE_FLOOR_S, EVIDENCE_TIMES_TYPICAL * typical_ttft_s)
        enough_s = min(first_token_s, usual_s)
    return waited_s >= enough_s * 0.99  # a timer may fire a tick early
