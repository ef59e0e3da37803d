"""From what callers met to the figures of a mode; pure.

Definitions as in docs/bench.md. Seconds, bytes, tokens; None where there is no figure.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from failsoft.engine.bench.run import ModeRun
from failsoft.engine.bench.slots import Work

SHORTEST_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a reply must keep to count as good, in seconds; None is no limit."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    @property
    def is_any(self) -> bool:
        """Whether there is a limit at all."""
        return any(limit is not None for limit in (self.ttft_s, self.tpot_s, self.e2e_s))

    def allow(self, *, ttft_s: float | None, tpot_s: float | None, e2e_s: float | None) -> bool:
        """Whether a reply keeps all of them; a TPOT that does not exist keeps its limit."""
        return (
            _within(ttft_s, self.ttft_s, missing=False)
            and _within(tpot_s, self.tpot_s, missing=True)
            and _within(e2e_s, self.e2e_s, missing=False)
        )


def _within(value: float | None, limit: float | None, *, missing: bool) -> bool:
    if limit is None:
        return True
    return missing if value is None else value <= limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Median and 95th percentile, in seconds; None where nothing was measured."""

    p50: float | None
    p95: float | None

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Spread":
        """Return the spread of the values that there are."""
        known = sorted(value for value in values if value is not None)
        return cls(p50=percentile(known, 0.5), p95=percentile(known, 0.95))


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the value below which *share* of *ordered* lies, between two by straight line.

    >>> percentile([1.0, 2.0, 4.0], 0.5), percentile([1.0, 2.0], 0.95), percentile([], 0.5)
    (2.0, 1.95, None)
    """
    if not ordered:
        return None
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeFigures:
    """One mode in figures."""

    wall_s: float
    output_tokens_per_s: float
    ttft_s: Spread
    tpot_s: Spread
    e2e_s: Spread
    slot_idle_ratio: float
    peak_rss_bytes: int | None
    preemptions: int
    goodput_rps: float | None
    shortest_e2e_p50_s: float | None
    """Median E2E of the quarter of the requests with the fewest output tokens."""

    def document(self) -> dict[str, Any]:
        """Return the mode as the JSON file has it."""
        spreads = {
            name: {"p50": spread.p50, "p95": spread.p95}
            for name, spread in (
                ("ttft_s", self.ttft_s),
                ("tpot_s", self.tpot_s),
                ("e2e_s", self.e2e_s),
            )
        }
        return {
            "wall_s": self.wall_s,
            "output_tokens_per_s": self.output_tokens_per_s,
            **spreads,
            "slot_idle_ratio": self.slot_idle_ratio,
            "peak_rss_bytes": self.peak_rss_bytes,
            "preemptions": self.preemptions,
            "goodput_rps": self.goodput_rps,
        }


def figures(run: ModeRun, *, limits: Limits = Limits()) -> ModeFigures:
    """Return what *run* amounts to."""
    served = run.served
    num_good = sum(
        limits.allow(ttft_s=one.ttft_s, tpot_s=one.tpot_s, e2e_s=one.e2e_s) for one in served
    )
    return ModeFigures(
        wall_s=run.wall_s,
        output_tokens_per_s=sum(one.num_output_tokens for one in served) / run.wall_s,
        ttft_s=Spread.of(one.ttft_s for one in served),
        tpot_s=Spread.of(one.tpot_s for one in served),
        e2e_s=Spread.of(one.e2e_s for one in served),
        slot_idle_ratio=slot_idle_ratio(run),
        peak_rss_bytes=run.peak_rss_bytes,
        preemptions=run.preemptions,
        goodput_rps=num_good / run.wall_s if limits.is_any else None,
        shortest_e2e_p50_s=shortest_e2e_p50_s(run),
    )


def slot_idle_ratio(run: ModeRun) -> float:
    """Return the share of the slots' time in which nobody's tokens were made in them.

    Rows that were kept in the forward after their reply was complete count as idle.
    """
    useful = sum(span.to_s - span.from_s for span in run.spans if span.work is not Work.KEPT)
    return max(0.0, 1.0 - useful / (run.wall_s * run.num_slots))


def shortest_e2e_p50_s(run: ModeRun) -> float | None:
    """Return the median E2E of the quarter of the requests with the shortest outputs."""
    ordered = sorted(run.served, key=lambda one: one.num_output_tokens)
    shortest = ordered[: int(len(ordered) * SHORTEST_SHARE)]
    return statistics.median(one.e2e_s for one in shortest) if shortest else None
