"""When a process that ended is started again, and when that is given up.

Pure: stamps are monotonic seconds that the caller passes in. Knows nothing of processes.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRules:
    """How patient to be with one kind of process."""

    first_s: float = 1.0
    """Wait before the first restart; it doubles up to *cap_s*."""
    cap_s: float = 30.0
    jitter_ratio: float = 0.25
    """Added at random, never taken off: in the first second after a crash the rung below has
    the machine to itself."""
    healthy_s: float = 60.0
    """Ready for this long, and earlier ends are forgotten."""
    max_ends: int | None = 5
    """Ends within *window_s*, none of them healthy, after which it is given up; None never."""
    window_s: float = 300.0
    is_first_free: bool = False
    """Whether the first restart waits for nothing: everything else waits for this process."""


class RestartPolicy:
    """Counts the ends of one process and says what to do after each.

    Args:
        rules: How patient to be.
        random: Uniform draw from [0, 1).
    """

    def __init__(self, rules: RestartRules, *, random: Callable[[], float]) -> None:
        self._rules = rules
        self._random = random
        self._num_doublings = 0
        self._ends_s: list[float] = []

    def delay_after(self, *, ended_s: float, ready_for_s: float | None) -> float | None:
        """Return the seconds to wait before the next start; None when it is given up.

        Args:
            ended_s: When it ended.
            ready_for_s: How long it had been ready; None when it never was.
        """
        rules = self._rules
        if ready_for_s is not None and ready_for_s >= rules.healthy_s:
            self.forget()
        self._ends_s = [end for end in self._ends_s if ended_s - end < rules.window_s]
        self._ends_s.append(ended_s)
        if rules.max_ends is not None and len(self._ends_s) >= rules.max_ends:
            return None
        doublings = self._num_doublings - rules.is_first_free
        self._num_doublings += 1
        if doublings < 0:
            return 0.0
        delay_s = min(rules.cap_s, rules.first_s * 2.0 ** min(doublings, 60))
        return delay_s * (1 + rules.jitter_ratio * self._random())

    def forget(self) -> None:
        """Begin anew, as after a healthy run or when somebody asked to try again."""
        self._num_doublings = 0
        self._ends_s.clear()
