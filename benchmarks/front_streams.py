"""64 streams of 50 deltas a second through one front: their gaps, and its processor time.

    python -m benchmarks.front_streams [--seconds S]

Upstream, front and readers run each in a process of its own. Units: milliseconds.
"""

import argparse
import time
from collections.abc import Iterator

from benchmarks.front_rig import running
from benchmarks.ladder_overhead import percentile_ms
from benchmarks.proof import Line, exactly, show

NUM_STREAMS = 64
GAP_MS = 20
MAX_GAP_MS = 50.0
MAX_CPU_RATIO = 0.6
SECONDS, SHORT_SECONDS = 20.0, 4.0


def measure(*, is_short: bool) -> Iterator[Line]:
    """Measure for some seconds."""
    yield from measure_for(SHORT_SECONDS if is_short else SECONDS)


def measure_for(seconds: float) -> Iterator[Line]:
    """Measure for *seconds*, after a warm-up."""
    with running() as rig:
        rig.load("streams", rig.front_url, NUM_STREAMS, 0.5, GAP_MS)
        direct = rig.load("streams", rig.direct_url, NUM_STREAMS, min(seconds, 5.0), GAP_MS)
        began_s, cpu_s = time.perf_counter(), rig.cpu_s()
        seen = rig.load("streams", rig.front_url, NUM_STREAMS, seconds, GAP_MS)
        # The load's own start counts as idle time, so the share is of the streams' time alone.
        wall_s = min(time.perf_counter() - began_s, seconds)
        used = (rig.cpu_s() - cpu_s) / wall_s
    gap_ms = max(seen["gaps"]) * 1000
    yield Line(
        must_hold=f"{NUM_STREAMS} streams of {1000 // GAP_MS} deltas/s: largest gap <= "
        f"{MAX_GAP_MS:g} ms (of which {GAP_MS} are the pace)",
        figure=f"{gap_ms:.0f} ms, p99 {percentile_ms(seen['gaps'], 0.99):.1f} ms, n = "
        f"{len(seen['gaps'])} (direct: {max(direct['gaps']) * 1000:.0f} ms)",
        has_passed=gap_ms <= MAX_GAP_MS,
    )
    yield Line(
        must_hold=f"the front's processor time meanwhile <= {MAX_CPU_RATIO:.0%} of one core",
        figure=f"{used:.0%}",
        has_passed=used <= MAX_CPU_RATIO,
    )
    lost = sum(seen["tokens"] - count for count in seen["counts"])
    yield exactly("deltas lost on the way", lost, 0)


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    for line in measure_for(parser.parse_args().seconds):
        show(line)


if __name__ == "__main__":
    main()
