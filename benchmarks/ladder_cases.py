"""The ladder's cases and the gateways' rows, each answered by the tests that hold it.

Rows that only a speed measurement answers are measured in the other parts of the proof.
"""

from collections.abc import Iterator

from benchmarks.cases import Case, measure_cases
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


def measure() -> Iterator[Line]:
    """Run every case's tests and say, case by case, how they ended."""
    return measure_cases(CASES)
