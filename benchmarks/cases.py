"""Cases from bug reports, each answered by the tests that hold it.

Runs the tests once and reads their report; a test's own figures (``record_property``)
are printed beside its case.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from benchmarks.proof import Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case or row, what it must show, and the tests that show it."""

    name: str
    aim: str
    tests: tuple[str, ...]


class Outcome(NamedTuple):
    """One test's end."""

    node: str
    has_passed: bool
    figures: tuple[tuple[str, str], ...]


def measure_cases(cases: Sequence[Case]) -> Iterator[Line]:
    """Run the tests of *cases* and say, case by case, how they ended."""
    outcomes = _run(sorted({test for case in cases for test in case.tests}))
    for case in cases:
        own = [o for o in outcomes if any(_belongs(o.node, test) for test in case.tests)]
        passed = sum(outcome.has_passed for outcome in own)
        has_all = all(any(_belongs(o.node, test) for o in own) for test in case.tests)
        yield Line(
            must_hold=f"{case.name}: {case.aim}",
            figure=f"{passed} of {len(own)} tests pass{_figures(own)}",
            has_passed=has_all and passed == len(own),
        )


def _run(tests: list[str]) -> list[Outcome]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-o",
                "junit_family=xunit1",
                f"--junitxml={report}",
                *tests,
            ],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
        )
        if not report.exists():
            return []
        return [_outcome(case) for case in ElementTree.parse(report).iter("testcase")]


def _outcome(case: ElementTree.Element) -> Outcome:
    path = case.attrib["classname"].replace(".", "/") + ".py"
    properties = (item.attrib for item in case.iter("property"))
    return Outcome(
        node=f"{path}::{case.attrib['name']}",
        has_passed=all(case.find(end) is None for end in ("failure", "error", "skipped")),
        figures=tuple((item["name"], item["value"]) for item in properties),
    )


def _belongs(node: str, test: str) -> bool:
    return node == test or node.startswith((f"{test}[", f"{test}::"))


def _figures(outcomes: list[Outcome]) -> str:
    """Return the figures of *outcomes*, a range where several tests tell the same one."""
    values: dict[str, list[str]] = {}
    for outcome in outcomes:
        for name, value in outcome.figures:
            values.setdefault(name, []).append(value)
    told = (f"{name} {_range(several)}" for name, several in values.items())
    return "".join(f"; {text}" for text in told)


def _range(values: list[str]) -> str:
    distinct = sorted(set(values), key=lambda text: (len(text), text))
    return distinct[0] if len(distinct) == 1 else f"{distinct[0]} to {distinct[-1]}"
