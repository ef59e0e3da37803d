"""Printing a proof: one line for each thing that must hold, with its figure."""

import argparse
import logging
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thing that must hold."""

    must_hold: str
    figure: str
    has_passed: bool


def exactly(must_hold: str, figure: int, expected: int) -> Line:
    """Return the line of a count that must be *expected*."""
    return Line(
        must_hold=f"{must_hold} = {expected}", figure=str(figure), has_passed=figure == expected
    )


Measurement = Callable[[], Iterable[Line]]
"""Measures, and yields a line for each thing it has found out."""


class Measurements(Protocol):
    """Returns what to measure, in order, under its headings."""

    def __call__(self, *, is_short: bool) -> list[tuple[str, Measurement]]:
        """Return the whole, or what CI repeats."""


SPEED = "Speed"
"""In the heading of what means something only on a machine that does nothing else."""


def show(line: Line) -> None:
    """Print *line*."""
    verdict = "pass" if line.has_passed else "FAIL"
    print(f"{verdict}  {line.must_hold}: {line.figure}", flush=True)


def run_proof(title: str, measurements: Iterable[tuple[str, Measurement]]) -> int:
    """Run *measurements* in order, print their lines, and return the exit code."""
    print(f"# {title}", flush=True)
    failed = 0
    total = 0
    for name, measure in measurements:
        print(f"\n## {name}", flush=True)
        began_s = time.monotonic()
        for line in measure():
            total += 1
            failed += not line.has_passed
            show(line)
        print(f"      in {time.monotonic() - began_s:.0f} s", flush=True)
    print(f"\n{total - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


def prove(
    title: str, measurements: Measurements, *, about: str | None, has_speed: bool = False
) -> None:
    """Run the command line of one proof, and exit with its code.

    Args:
        title: What is proven.
        measurements: Returns headings and what to measure, in order; ``is_short`` is what CI
            repeats.
        about: The module's own words, for ``--help``.
        has_speed: Whether some headings say `SPEED`, and ``--skip-speed`` leaves them out.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--short", action="store_true", help="what CI repeats")
    if has_speed:
        parser.add_argument("--skip-speed", action="store_true", help="on a busy machine")
    parser.add_argument("--only", help="measure only headings that contain this")
    options = parser.parse_args()
    chosen = [
        (name, measure)
        for name, measure in measurements(is_short=options.short)
        if (not options.only or options.only.lower() in name.lower())
        and not (has_speed and options.skip_speed and SPEED in name)
    ]
    finish(run_proof(f"{title}, in short" if options.short else title, chosen))


def quieten() -> None:
    """Keep failsoft's own warnings out of a proof's lines."""
    logging.getLogger("failsoft").setLevel(logging.ERROR)


def finish(code: int) -> None:
    """Exit with *code*."""
    sys.exit(code)
