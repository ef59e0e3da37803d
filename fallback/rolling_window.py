"""Counts over the last seconds, in fixed steps: what the budget and the breaker add up.

Units: monotonic seconds. Not thread-safe: one event loop owns it. Memory and
time do not grow with traffic.
"""

from collections.abc import Callable

NUM_BUCKETS = 10
"""The window moves on by a tenth of its length at a time."""


class RollingWindow:
    """Sums of *num_counts* counters over the last *window_s* seconds, to a tenth of it."""

    __slots__ = ("_buckets", "_clock", "_slot", "_totals", "_width_s")

    def __init__(self, *, window_s: float, num_counts: int, clock: Callable[[], float]) -> None:
        self._width_s = window_s / NUM_BUCKETS
        self._clock = clock
        self._slot = int(clock() / self._width_s)
        self._buckets = [[0] * num_counts for _ in range(NUM_BUCKETS)]
        self._totals = [0] * num_counts

    def add(self, which: int, amount: int = 1) -> None:
        """Count *amount* for counter *which* now."""
        self._advance()
        self._buckets[self._slot % NUM_BUCKETS][which] += amount
        self._totals[which] += amount

    def total(self, which: int) -> int:
        """Return counter *which* over the window."""
        self._advance()
        return self._totals[which]

    def clear(self) -> None:
        """Forget everything counted."""
        for bucket in self._buckets:
            bucket[:] = [0] * len(bucket)
        self._totals[:] = [0] * len(self._totals)

    def _advance(self) -> None:
        slot = int(self._clock() / self._width_s)
        if slot <= self._slot:
            return
        for passed in range(self._slot + 1, min(slot, self._slot + NUM_BUCKETS) + 1):
            bucket = self._buckets[passed % NUM_BUCKETS]
            for which, count in enumerate(bucket):
                self._totals[which] -= count
                bucket[which] = 0
        self._slot = slot
