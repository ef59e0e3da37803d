"""How steps went, counted since the start: what a scrape reads between two of its own visits.

Pure Python and a few additions a step: the ring of `step_log` may turn over between two
scrapes, these do not. One thread adds; any thread may read. Units: seconds, tokens.
"""

from bisect import bisect_left
from collections.abc import Iterable

from failsoft.engine.sequence import RowResult, StepPlan
from failsoft.errors import EngineError
from failsoft.records import Distribution, StepStats

_STEP_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_GAP_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 5.0, 20.0)
_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)


class Tally:
    """Counts values under fixed upper bounds, as a Prometheus histogram does."""

    def __init__(self, bounds: Iterable[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0

    def add(self, value: float) -> None:
        """Count *value* in the first bucket whose bound is not below it."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def read(self) -> Distribution:
        """Return what was counted so far."""
        return Distribution(bounds=self._bounds, counts=tuple(self._counts), total=self._total)


class StepTallies:
    """Counts the steps of one engine."""

    def __init__(self) -> None:
        self._seconds = {kind: Tally(_STEP_S) for kind in ("prefill", "decode", "mixed")}
        self._tokens = Tally(_TOKENS)
        self._rows = Tally(_ROWS)
        self._gaps_s = Tally(_GAP_S)

    def note_gaps(self, plan: StepPlan, results: Iterable[RowResult], now_s: float) -> None:
        """Count the gap before each new token of a request that had one; call before settling."""
        for row, result in zip(plan.rows, results, strict=True):
            last_s = row.sequence.last_token_s
            if row.is_sampling and last_s is not None and not isinstance(result, EngineError):
                self._gaps_s.add(now_s - last_s)

    def note_step(self, plan: StepPlan, seconds: float) -> None:
        """Count a step that took *seconds*, plan and settling in."""
        self._seconds[_kind(plan)].add(seconds)
        self._tokens.add(plan.num_tokens)
        self._rows.add(len(plan.rows))

    def read(self) -> StepStats:
        """Return what was counted so far."""
        return StepStats(
            seconds={kind: tally.read() for kind, tally in self._seconds.items()},
            tokens=self._tokens.read(),
            rows=self._rows.read(),
            gaps_s=self._gaps_s.read(),
        )


def _kind(plan: StepPlan) -> str:
    """Return whether a step held prompts, single tokens that were followed by one, or both."""
    num_decode = sum(1 for row in plan.rows if row.is_sampling and row.num_tokens == 1)
    if not num_decode:
        return "prefill"
    return "decode" if num_decode == len(plan.rows) else "mixed"
