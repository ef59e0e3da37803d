"""The ladder's cases and the gateways' rows, each answered by the tests that hold it.

Runs the tests once and reads their report; a test's own figures (``record_property``)
are printed beside its row. Rows that only a speed measurement answers are measured in
the other parts of the proof.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from benchmarks.proof import Line

_ANSWERS = "tests/fallback/test_ladder_answers.py::"
_STATUSES = "tests/fallback/test_ladder_statuses.py::"
_STALLS = "tests/fallback/test_ladder_stalls.py::"
_FIT = "tests/fallback/test_ladder_fit.py::"
_OUTAGE = "tests/fallback/test_outage.py::"
_CACHE = "tests/fallback/test_cached_rung.py::"
_STREAM = "tests/fallback/test_streaming.py::"
_FLIGHT = "tests/fallback/test_single_flight.py::"
_SHUTDOWN = "tests/engine/http/test_shutdown.py::"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case or row, what it must show, and the tests that show it."""

    name: str
    aim: str
    tests: tuple[str, ...]


CASES = (
    Case(
        name="wire count (#7262)",
        aim="exactly 3+3 upstream calls, or less by budget, then 503",
        tests=(
            f"{_STATUSES}test_wire_count_is_attempts_on_each_rung",
            f"{_STATUSES}test_wire_count_is_less_when_the_budget_says_so",
            f"{_STALLS}test_a_deadline_over_everything_is_kept",
        ),
    ),
    Case(
        name="a caller's fault",
        aim="goes nowhere else",
        tests=(f"{_STATUSES}test_a_callers_fault_goes_nowhere_else",),
    ),
    Case(
        name="retry budget",
        aim="upstream <= 1.1 of 200 calls/s and the floor, no spike at recovery",
        tests=(
            "tests/fallback/test_retry_budget.py::"
            "test_total_outage_at_200_calls_a_second_stays_within_a_tenth",
            "tests/fallback/test_retry_budget.py::test_after_an_outage_there_is_no_hoard_to_spend",
        ),
    ),
    Case(
        name="both down at a steady rate",
        aim="upstream calls per call <= 1.15 after the floor",
        tests=(f"{_OUTAGE}test_everything_down_does_not_multiply_load",),
    ),
    Case(
        name="Retry-After",
        aim="obeyed within the deadline, else step down at once",
        tests=(
            f"{_STATUSES}test_retry_after_is_obeyed_within_the_deadline",
            f"{_STATUSES}test_retry_after_beyond_reach_steps_down_at_once",
            "tests/fallback/test_retry_after.py",
        ),
    ),
    Case(
        name="error before content (#5395)",
        aim="only the next rung's text, once",
        tests=(f"{_STREAM}test_an_error_event_before_content_shows_only_the_next_rungs_text",),
    ),
    Case(
        name="bad answer before any text",
        aim="every kind rescued, whole and streamed (gateways: 9 and 1 of 14 kinds)",
        tests=(f"{_ANSWERS}test_a_bad_answer_before_any_text_is_rescued_by_the_next_rung",),
    ),
    Case(
        name="cut after 40 tokens (#1797)",
        aim="typed error, no other rung, nothing kept, 40 tokens charged, row incomplete",
        tests=(
            f"{_STREAM}test_a_cut_after_the_first_delta_is_a_typed_error",
            f"{_CACHE}test_only_complete_plain_replies_are_kept",
        ),
    ),
    Case(
        name="stalls (#6328, #38358)",
        aim="each ends at its clock within 10 %, closed at the endpoint, next rung answers",
        tests=(
            f"{_STALLS}test_a_stall_ends_at_its_clock_and_the_next_rung_answers",
            f"{_STALLS}test_one_token_then_silence_ends_at_the_gap_clock",
        ),
    ),
    Case(
        name="alive but silent, 40 calls",
        aim="paid until the breaker opens, then 0",
        tests=(f"{_OUTAGE}test_an_endpoint_alive_but_silent_is_paid_for_until_its_breaker_opens",),
    ),
    Case(
        name="breaker recovery",
        aim="1 probe of 50 parallel calls",
        tests=(f"{_OUTAGE}test_recovery_is_found_by_one_probe",),
    ),
    Case(
        name="stale as the last rung",
        aim="marked with its age; past the window 503; a caller's 400 stays; tools 503; then fresh",
        tests=(
            f"{_CACHE}test_a_stale_reply_beats_none",
            f"{_CACHE}test_past_its_window_there_is_no_answer",
            f"{_CACHE}test_a_callers_fault_is_never_answered_from_the_cache",
            f"{_CACHE}test_another_call_gets_no_reply_of_this_one",
            f"{_FIT}test_a_cache_that_cannot_help_says_why",
        ),
    ),
    Case(
        name="cache isolation",
        aim="0 leaks over tenants, versions and kinds",
        tests=(
            "tests/fallback/test_cache_key.py",
            f"{_FLIGHT}test_tenants_never_share",
            "tests/fallback/test_discovery.py::"
            "test_a_reply_of_an_engine_that_is_down_is_found_by_a_new_client",
        ),
    ),
    Case(
        name="10 identical parallel calls",
        aim="1 upstream call",
        tests=(f"{_FLIGHT}test_ten_identical_parallel_calls_hit_upstream_once",),
    ),
    Case(
        name="the caller leaves",
        aim="cancelled within 100 ms, 0 new upstream calls",
        tests=(
            f"{_STREAM}test_a_caller_who_leaves_cancels_everything_behind_it",
            f"{_STREAM}test_a_caller_who_leaves_while_a_retry_waits_cancels_the_retry",
            f"{_FLIGHT}test_when_the_last_caller_leaves_the_flight_is_cancelled",
        ),
    ),
    Case(
        name="drain (#14334)",
        aim="streams finish, new calls 503, exit 0; what outlives the cap gets an error event",
        tests=(
            f"{_SHUTDOWN}test_sigterm_lets_streams_finish",
            f"{_SHUTDOWN}test_what_outlives_the_drain_ends_in_an_error_event",
        ),
    ),
    Case(
        name="reload (#40761)",
        aim="a bad file leaves the old one live; a good one under load costs no call",
        tests=("tests/fallback/test_reload.py",),
    ),
)


class Outcome(NamedTuple):
    """One test's end."""

    node: str
    has_passed: bool
    figures: tuple[tuple[str, str], ...]


def measure() -> Iterator[Line]:
    """Run every case's tests and say, case by case, how they ended."""
    outcomes = _run(sorted({test for case in CASES for test in case.tests}))
    for case in CASES:
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
