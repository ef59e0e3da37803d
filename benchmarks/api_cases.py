"""The engine's cases from bug reports, each answered over HTTP by the tests that hold it."""

from collections.abc import Iterator

from benchmarks.cases import Case, measure_cases
from benchmarks.proof import Line

_HTTP = "tests/engine/http/"
_SAMPLING = f"{_HTTP}test_sampling.py::"
_ANSWERS = f"{_HTTP}test_answers.py::"
_BAD = f"{_HTTP}test_bad_requests.py::"
_SHUTDOWN = f"{_HTTP}test_shutdown.py::"
_CROWDS = f"{_HTTP}test_crowds.py::"

CASES = (
    Case(
        name="32 at once, and the same with KV for six",
        aim="each text is the one it gets alone; preemptions, no 5xx, no KV left in use",
        tests=(f"{_CROWDS}test_in_a_crowd_each_gets_the_text_it_gets_alone",),
    ),
    Case(
        name="a prompt twice, then with a suffix",
        aim="cached tokens, the same text, none under another salt",
        tests=(f"{_CROWDS}test_a_prompt_that_was_there_is_not_computed_again",),
    ),
    Case(
        name="stop strings over several tokens and inside one",
        aim="the text before the stop, nothing of it sent",
        tests=(f"{_ANSWERS}test_a_stop_string_ends_the_answer_and_the_request",),
    ),
    Case(
        name="a caller who leaves",
        aim="aborted while running, queued and in prefill; blocks freed and counted",
        tests=(
            f"{_HTTP}test_disconnect.py",
            f"{_CROWDS}test_a_caller_that_leaves_during_its_prompt_frees_its_blocks",
        ),
    ),
    Case(
        name="bad bodies",
        aim="400 that names the field; a neighbour's stream unchanged",
        tests=(f"{_HTTP}test_bad_requests.py",),
    ),
    Case(
        name="extreme sampling values",
        aim="equal greedy",
        tests=(f"{_SAMPLING}test_extreme_values_equal_greedy",),
    ),
    Case(
        name="n = 4 under a seed",
        aim="four texts, the same under load and over a preemption",
        tests=(
            f"{_SAMPLING}test_four_choices_under_a_seed_are_the_same_four_under_load",
            f"{_SAMPLING}test_a_preempted_choice_draws_the_same_noise",
        ),
    ),
    Case(
        name="structured output and tools",
        aim="valid where finished; bad ones 400 while others run; deltas join to JSON",
        tests=(f"{_HTTP}test_structured.py", f"{_HTTP}test_tools.py"),
    ),
    Case(
        name="streams with and without usage",
        aim="no chunk without choices unless asked; then the last one",
        tests=(f"{_HTTP}test_openai_client.py::test_a_stream_carries_usage_only_when_asked",),
    ),
    Case(
        name="a long prompt beside streams, then a flood beside a long one",
        aim="no stream is held up by it, and it is not starved",
        tests=(
            f"{_CROWDS}test_a_long_prompt_holds_up_no_stream",
            f"{_CROWDS}test_a_flood_of_short_requests_does_not_starve_a_long_one",
        ),
    ),
    Case(
        name="a deadline behind a full queue",
        aim="504 before any decode",
        tests=(f"{_HTTP}test_faults.py::test_a_deadline_that_passes_in_the_queue_is_504",),
    ),
    Case(
        name="SIGTERM under streams",
        aim="they finish, or end in an error event; exit 0",
        tests=(
            f"{_SHUTDOWN}test_sigterm_lets_streams_finish",
            f"{_SHUTDOWN}test_what_outlives_the_drain_ends_in_an_error_event",
        ),
    ),
    Case(
        name="two priorities",
        aim="the urgent overtakes, the preempted finish with the same text",
        tests=(f"{_SAMPLING}test_a_high_priority_overtakes_and_the_preempted_finish_unchanged",),
    ),
    Case(
        name="bodies of other clients",
        aim="200; ignore_eos gives exactly max_tokens",
        tests=(
            f"{_ANSWERS}test_bodies_of_other_clients_are_accepted",
            f"{_SAMPLING}test_ignore_eos_gives_exactly_max_tokens",
        ),
    ),
)


def measure() -> Iterator[Line]:
    """Run every case's tests and say, case by case, how they ended."""
    return measure_cases(CASES)
