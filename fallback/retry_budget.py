"""The retry budget: how many upstream calls beyond the first one live traffic pays for.

Units: calls over a rolling window of seconds. Not thread-safe: one event loop
owns it. An outage must not multiply load: retries are at most a share of live
calls, with a floor for quiet times (Envoy and the SRE book's 10 % rule).

Two things draw on it: every retry, and a step down to an endpoint that did not
earn it (`failsoft.fallback.endpoint.Endpoint.earns_step_down`). A step down to a
healthy endpoint is free: it is what the ladder is for. The last model rung may
draw on all of it, the others on half: a retry there saves a better answer, a
retry on the last rung saves an answer at all.
"""

from collections.abc import Callable

from failsoft.fallback.rolling_window import RollingWindow

FLOOR = 3
"""Extra upstream calls per window that are free of traffic (Envoy's minimum concurrency)."""
WINDOW_S = 10.0
UPPER_RUNG_SHARE = 0.5

_CALLS, _SPENT = 0, 1


class RetryBudget:
    """Grants extra upstream calls as a share of live traffic.

    Args:
        ratio: Extra calls per live call, 0..1.
        clock: Monotonic seconds.
    """

    def __init__(self, *, ratio: float, clock: Callable[[], float]) -> None:
        self._ratio = ratio
        self._window = RollingWindow(window_s=WINDOW_S, num_counts=2, clock=clock)
        self.spent_total = 0
        self.refused_total = 0

    def on_call(self) -> None:
        """Count one live call."""
        self._window.add(_CALLS)

    def try_spend(self, *, is_last_rung: bool) -> bool:
        """Take one extra upstream call; False when there is none left for this rung."""
        allowance = max(FLOOR, self._ratio * self._window.total(_CALLS))
        share = 1.0 if is_last_rung else UPPER_RUNG_SHARE
        if self._window.total(_SPENT) + 1 > max(allowance * share, min(FLOOR - 1, allowance)):
            self.refused_total += 1
            return False
        self._window.add(_SPENT)
        self.spent_total += 1
        return True
