"""``make proof-ladder``: every line the ladder must hold, measured here and now.

Real processes, real sockets, a real SQLite store. ``--short`` is what CI repeats: fewer
calls, shorter outages. Lines with milliseconds mean something only on a machine that does
nothing else: ``--skip-speed`` leaves them out.
"""

import asyncio
from collections.abc import Iterator
from functools import partial

from benchmarks import (
    ladder_cases,
    ladder_outage,
    ladder_overhead,
    ladder_storm,
    ladder_streams,
    ladder_writer,
)
from benchmarks.proof import Line, Measurement, prove, quieten

MAX_P50_MS = 1.0
MAX_P99_MS = 5.0


def measure_overhead(*, is_short: bool) -> Iterator[Line]:
    """Measure the cost of a call that succeeds, recording on."""
    seen = asyncio.run(ladder_overhead.measure(300 if is_short else 3000, max_s=120))
    for name, value, limit in (("p50", seen.p50_ms, MAX_P50_MS), ("p99", seen.p99_ms, MAX_P99_MS)):
        yield Line(
            must_hold=f"client minus a bare HTTP client, {name} <= {limit:g} ms, recording on",
            figure=f"{value:.2f} ms, n = {seen.num_calls}",
            has_passed=value <= limit,
        )


def measurements(*, is_short: bool) -> list[tuple[str, Measurement]]:
    """Return what to measure, in order; titles of what needs a quiet machine say Speed."""
    three, two = (800, 200) if is_short else (10_000, 2_000)
    # They are tests, which CI has run by then.
    cases: list[tuple[str, Measurement]] = (
        [] if is_short else [("4. The cases and the gateways' rows", ladder_cases.measure)]
    )
    return [
        (
            "1. A storm over three rungs, 30 % of attempts fail",
            partial(ladder_storm.measure, three, ratios=ladder_storm.THREE_RUNGS),
        ),
        (
            "1. The gateways' mix: two rungs, 30 % and 10 % fail",
            partial(ladder_storm.measure, two, ratios=ladder_storm.TWO_RUNGS),
        ),
        ("2. Everything down", partial(ladder_outage.measure, is_short=is_short)),
        ("2. Speed: overhead on success", partial(measure_overhead, is_short=is_short)),
        ("3. Speed: the writer", partial(ladder_writer.measure, is_short=is_short)),
        *cases,
        ("4. Speed: streams", partial(ladder_streams.measure, is_short=is_short)),
    ]


if __name__ == "__main__":
    quieten()
    prove("The ladder", measurements, about=__doc__, has_speed=True)
