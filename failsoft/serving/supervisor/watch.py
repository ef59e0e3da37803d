"""Whether a process that is alive still works: a verdict from one observation after another.

Pure: stamps are monotonic seconds that the caller passes in. Knows nothing of HTTP.

Why the clocks are safe for an engine that is busy: it counts as without progress only when
no forward has ended for 10 s (`HttpConfig.stuck_after_s`), and a forward packs at most
``max_step_tokens``. Where one takes longer still (a large model on few cores), its process
uses the CPU all the while, and then it gets `WatchRules.busy_s`. What hangs, is stopped or
waits for a lock uses none.
"""

from dataclasses import dataclass
from typing import Literal

Answer = Literal["ready", "not_ready", "stuck", "failing", "engine_dead", "silent"]
"""What a process says of its health; ``silent``: nothing in time, or nothing that is HTTP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRules:
    """The clocks of one kind of process, in seconds."""

    every_s: float = 1.0
    """Between two questions."""
    timeout_s: float = 2.0
    """How long one question waits for its answer."""
    hang_s: float = 8.0
    """Silent or stuck for this long without using the CPU: it hangs."""
    busy_s: float = 120.0
    """The same of a process that uses the CPU."""
    busy_cores: float = 0.05
    """What counts as using the CPU, in cores. A server that only says "stuck" uses 0.002."""
    start_s: float = 900.0
    """How long a start may take, a first download included."""

    @property
    def longest_gap_s(self) -> float:
        """How much time one observation may stand for.

        A supervisor that was itself stopped or starved saw nothing meanwhile.
        """
        return self.every_s + self.timeout_s + 1.0


class HealthWatch:
    """Adds up for how long a process has not worked.

    Args:
        rules: The clocks.
        now_s: When watching begins.
        cpu_s: CPU seconds the process has used so far; None when not known.
    """

    def __init__(self, rules: WatchRules, *, now_s: float, cpu_s: float | None) -> None:
        self._rules = rules
        self._last_s = now_s
        self._last_cpu_s = cpu_s
        self._quiet_s = 0.0
        self._busy_s = 0.0

    def verdict(self, answer: Answer, *, now_s: float, cpu_s: float | None) -> str | None:
        """Take in one observation; return in words why the process must go, or None.

        Args:
            answer: What it said.
            now_s: When it said so, or was given up on.
            cpu_s: CPU seconds it has used so far; None when not known.
        """
        gap_s = now_s - self._last_s
        is_busy = self._is_busy(gap_s, cpu_s)
        self._last_s, self._last_cpu_s = now_s, cpu_s
        if answer in ("ready", "not_ready"):
            self._quiet_s = self._busy_s = 0.0
            return None
        if answer == "engine_dead":
            return "its engine thread has died"
        counted_s = min(gap_s, self._rules.longest_gap_s)
        if is_busy and answer != "failing":
            self._busy_s += counted_s
        else:
            self._quiet_s += counted_s
        if self._quiet_s >= self._rules.hang_s:
            return _words(answer, self._quiet_s)
        if self._quiet_s + self._busy_s >= self._rules.busy_s:
            return _words(answer, self._quiet_s + self._busy_s)
        return None

    def _is_busy(self, gap_s: float, cpu_s: float | None) -> bool:
        if cpu_s is None or self._last_cpu_s is None or gap_s <= 0:
            return False
        return (cpu_s - self._last_cpu_s) / gap_s >= self._rules.busy_cores


def _words(answer: Answer, seconds: float) -> str:
    what = {
        "silent": "it answered nothing",
        "stuck": "it has work and makes no progress",
        "failing": "every forward failed",
    }[answer]
    return f"{what} for {seconds:.0f} s"
