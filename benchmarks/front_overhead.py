"""What a front adds to a call: over asking its upstream directly, recording on.

    python -m benchmarks.front_overhead [--calls N]

Upstream, front and asker run each in a process of its own; both ways are asked in turn,
so that a busy moment hits both. Units: milliseconds.
"""

import argparse
from collections.abc import Iterator

from benchmarks.front_rig import running
from benchmarks.ladder_overhead import percentile_ms
from benchmarks.proof import Line, show

LIMITS: dict[tuple[str, int], tuple[float, float | None]] = {
    ("whole", 1): (1.5, 5.0),
    ("whole", 16): (12.0, 40.0),
    ("first", 1): (2.0, None),
    ("first", 16): (15.0, None),
}
"""By what is timed and how many connections: milliseconds more at p50 and at p99."""
WORDS = {"whole": "a whole reply", "first": "the first delta of a stream"}
CALLS, SHORT_CALLS = 6000, 800


def measure(*, is_short: bool) -> Iterator[Line]:
    """Measure at one connection and at 16."""
    yield from measure_calls(SHORT_CALLS if is_short else CALLS)


def measure_calls(num_calls: int) -> Iterator[Line]:
    """Measure *num_calls* of each kind."""
    with running() as rig:
        for parallel in (1, 16):
            seen = rig.load("overhead", rig.direct_url, rig.front_url, parallel, num_calls)
            for name, sides in seen.items():
                yield _line(name, parallel, sides)


def _line(name: str, parallel: int, sides: dict[str, list[float]]) -> Line:
    p50_max, p99_max = LIMITS[name, parallel]
    p50, p99 = (
        percentile_ms(sides["front"], share) - percentile_ms(sides["direct"], share)
        for share in (0.5, 0.99)
    )
    aim = f"p50 <= {p50_max:g} ms" + (f", p99 <= {p99_max:g} ms" if p99_max is not None else "")
    direct = percentile_ms(sides["direct"], 0.5)
    return Line(
        must_hold=f"over the upstream itself, {WORDS[name]}, {parallel} at once: {aim}",
        figure=f"p50 {p50:+.2f} ms, p99 {p99:+.2f} ms (direct p50 {direct:.2f} ms), "
        f"n = {len(sides['front'])}",
        has_passed=p50 <= p50_max and (p99_max is None or p99 <= p99_max),
    )


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=CALLS)
    for line in measure_calls(parser.parse_args().calls):
        show(line)


if __name__ == "__main__":
    main()
