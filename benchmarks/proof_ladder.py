"""Measures every line the ladder must hold and prints it with pass or FAIL.

    python -m benchmarks.proof_ladder [--short]

Real processes, real sockets, a real SQLite store. Exit code 1 when a line fails.
``--short`` makes fewer calls, for CI. The overhead line means something only on a
machine that does nothing else.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator

from benchmarks.ladder_outage import prove_outage
from benchmarks.ladder_overhead import measure
from benchmarks.ladder_storm import prove_storm
from benchmarks.proof_line import Line

MAX_P50_MS = 1.0
MAX_P99_MS = 5.0


def prove_overhead(*, short: bool) -> Iterator[Line]:
    """Measure the cost of a call that succeeds."""
    seen = asyncio.run(measure(300 if short else 3000, max_s=120))
    for name, value, limit in (("p50", seen.p50_ms, MAX_P50_MS), ("p99", seen.p99_ms, MAX_P99_MS)):
        yield Line(
            name=f"overhead on success, {name} (n = {seen.num_calls})",
            figure=f"{value:.2f} ms",
            limit=f"<= {limit} ms",
            holds=value <= limit,
        )


def main() -> None:
    """Print every line; exit 1 when one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="fewer calls, for CI")
    parser.add_argument("--skip-overhead", action="store_true", help="on a busy machine")
    arguments = parser.parse_args()
    failed = 0
    proofs = [prove_storm, prove_outage]
    if not arguments.skip_overhead:
        proofs.append(prove_overhead)
    for prove in proofs:
        for line in prove(short=arguments.short):
            failed += not line.holds
            print(line, flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
