"""Printing a proof: one line for each thing that must hold, with its figure."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass


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


def run_proof(title: str, measurements: Iterable[tuple[str, Measurement]]) -> int:
    """Run *measurements* in order, print their lines, and return the exit code."""
    print(f"# {title}", flush=True)
    failed = 0
    total = 0
    for name, measure in measurements:
        print(f"\n## {name}", flush=True)
        for line in measure():
            total += 1
            failed += not line.has_passed
            verdict = "pass" if line.has_passed else "FAIL"
            print(f"{verdict}  {line.must_hold}: {line.figure}", flush=True)
    print(f"\n{total - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


def finish(code: int) -> None:
    """Exit with *code*."""
    sys.exit(code)
