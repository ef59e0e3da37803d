"""What the demo's callers met, counted as it comes; any thread.

Knows nothing of HTTP or terminals. Monotonic seconds.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

RECENT_S = 5.0
NUM_TO_SHIFT = 2
"""Replies in a row from another rung before it counts as the one that answers now."""


class CallEnd(StrEnum):
    """How one call ended for its caller."""

    ANSWERED = "answered"
    CUT = "cut"
    """Its text had begun; nobody else may finish it, so the caller got a typed error."""
    FAILED = "failed"
    """It got nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """One call."""

    end: CallEnd
    rung: str | None
    """Who answered, or began to."""
    first_token_s: float | None
    """Call to first text; None when none came."""
    ended_s: float
    why: str | None = None
    """Why it failed or was cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The score at one moment."""

    recent: Mapping[str, int]
    """Replies of the last `RECENT_S` by rung."""
    total: Mapping[str, int]
    """Replies since the start by rung."""
    rung: str | None
    """Who answers now; None before the first reply."""
    num_failed: int
    num_cut: int
    slowest_first_token_s: float | None
    last_failure: str | None

    @property
    def num_recent(self) -> int:
        """Replies that the recent shares are of."""
        return sum(self.recent.values())

    def share(self, rung: str) -> float | None:
        """Return *rung*'s share of the recent replies, 0..1; None when there were none."""
        return self.recent.get(rung, 0) / self.num_recent if self.num_recent else None


class Score:
    """Counts results.

    Args:
        rungs: All rungs in order: each is shown though it never answered.
        clock: Monotonic seconds.
        on_shift: Told the rung from which replies come now, when that changes.
    """

    def __init__(
        self,
        rungs: tuple[str, ...],
        *,
        clock: Callable[[], float] = time.monotonic,
        on_shift: Callable[[str], None] = lambda _rung: None,
    ) -> None:
        self._clock = clock
        self._on_shift = on_shift
        self._lock = threading.Lock()
        self._recent: deque[CallResult] = deque()
        self._total: Counter[str] = Counter(dict.fromkeys(rungs, 0))
        self._ends: Counter[CallEnd] = Counter()
        self._rung: str | None = None
        self._other, self._num_other = "", 0
        self._slowest_s: float | None = None
        self._last_failure: str | None = None

    def add(self, result: CallResult) -> None:
        """Count one call."""
        with self._lock:
            self._ends[result.end] += 1
            if result.first_token_s is not None:
                self._slowest_s = max(self._slowest_s or 0.0, result.first_token_s)
            if result.end is CallEnd.FAILED:
                self._last_failure = result.why
            if result.end is not CallEnd.ANSWERED or result.rung is None:
                return
            self._total[result.rung] += 1
            self._recent.append(result)
            has_shifted = self._shift(result.rung)
        if has_shifted:
            self._on_shift(result.rung)

    def tally(self) -> Tally:
        """Return the score now."""
        with self._lock:
            oldest_s = self._clock() - RECENT_S
            while self._recent and self._recent[0].ended_s < oldest_s:
                self._recent.popleft()
            recent = Counter(result.rung or "" for result in self._recent)
            return Tally(
                recent={rung: recent[rung] for rung in self._total},
                total=dict(self._total),
                rung=self._rung,
                num_failed=self._ends[CallEnd.FAILED],
                num_cut=self._ends[CallEnd.CUT],
                slowest_first_token_s=self._slowest_s,
                last_failure=self._last_failure,
            )

    def _shift(self, rung: str) -> bool:
        """Note who answered; True when replies come from another rung than before."""
        if rung == self._rung:
            self._num_other = 0
            return False
        self._num_other = self._num_other + 1 if rung == self._other else 1
        self._other = rung
        if self._rung is not None and self._num_other < NUM_TO_SHIFT:
            return False
        self._rung, self._num_other = rung, 0
        return True
