"""One step: ends, deadlines, aborts, and faults that stay with their own request."""

import json

import pytest

from failsoft.engine.request import EngineEvent, FinishedEvent
from failsoft.engine.sequence import RowResult, StepPlan
from failsoft.engine.step_log import StepLog
from failsoft.engine.step_loop import StepLoop
from failsoft.errors import DeadlineExceededError, ForwardError
from failsoft.records import FinishReason
from tests.engine.builders import (
    Collector,
    FakeClock,
    FakeRunner,
    expected_output,
    make_loop,
    make_request,
    make_scheduler,
    run_to_end,
)


def test_max_tokens_ends_with_length() -> None:
    """Every sampled token was shown, and the record counts them."""
    loop, events = make_loop(make_scheduler()), Collector()
    request = make_request("a", 5, max_tokens=3)
    loop.add(request, events)

    run_to_end(loop)

    assert events.tokens["a"] == expected_output(request.prompt_ids, 3)
    record = events.finished["a"].record
    assert (record.finish_reason, record.num_output_tokens) == (FinishReason.LENGTH, 3)


def test_an_eos_token_ends_the_request_and_is_not_shown() -> None:
    """It counts as output, since it was computed."""
    request = make_request("a", 5, max_tokens=9, ignore_eos=False)
    eos = expected_output(request.prompt_ids, 3)[-1]
    loop, events = make_loop(make_scheduler(), eos=frozenset([eos])), Collector()
    loop.add(request, events)

    run_to_end(loop)

    assert events.tokens["a"] == expected_output(request.prompt_ids, 2)
    record = events.finished["a"].record
    assert (record.finish_reason, record.num_output_tokens) == (FinishReason.STOP, 3)


def test_ignore_eos_goes_on_to_max_tokens() -> None:
    """Benchmarks ask for exact lengths."""
    request = make_request("a", 5, max_tokens=9, ignore_eos=True)
    eos = expected_output(request.prompt_ids, 3)[-1]
    loop, events = make_loop(make_scheduler(), eos=frozenset([eos])), Collector()
    loop.add(request, events)

    run_to_end(loop)

    assert events.finished["a"].record.num_output_tokens == 9


def test_a_deadline_passed_in_the_queue_costs_no_forward() -> None:
    """Dead work is dropped before it takes KV blocks."""
    clock, runner, events = FakeClock(), FakeRunner(), Collector()
    loop = make_loop(make_scheduler(), runner, clock=clock)
    loop.add(make_request("late", 5, deadline_s=100.3), events)
    clock.now_s = 100.5

    loop.step()

    finished = events.finished["late"]
    assert finished.record.finish_reason is FinishReason.DEADLINE
    assert isinstance(finished.error, DeadlineExceededError)
    assert finished.error.late_s == pytest.approx(0.2)
    assert runner.plans == []


def test_a_deadline_passed_while_running_frees_its_blocks() -> None:
    """The neighbour goes on undisturbed."""
    clock, events = FakeClock(), Collector()
    scheduler = make_scheduler()
    loop = make_loop(scheduler, clock=clock)
    other = make_request("other", 5, max_tokens=6)
    loop.add(make_request("late", 5, max_tokens=50, deadline_s=101.0), events)
    loop.add(other, events)
    loop.step()
    clock.now_s = 102.0

    run_to_end(loop)

    assert events.finished["late"].record.finish_reason is FinishReason.DEADLINE
    assert events.tokens["other"] == expected_output(other.prompt_ids, 6)


class FailingRunner(FakeRunner):
    """Raises whenever *poison* is among the rows."""

    poison = "poison"

    def run(self, plan: StepPlan) -> list[RowResult]:
        if any(row.sequence.request_id == self.poison for row in plan.rows):
            raise ForwardError("a forward raised ValueError", kind="exception")
        return super().run(plan)


def test_an_exception_in_a_forward_fails_only_the_request_that_causes_it() -> None:
    """Rows of a failed forward run alone, so the guilty one is found."""
    loop, events = make_loop(make_scheduler(), FailingRunner()), Collector()
    good = [make_request(f"good{n}", 5, max_tokens=4) for n in range(3)]
    for request in (good[0], make_request("poison", 5), *good[1:]):
        loop.add(request, events)

    run_to_end(loop)

    assert isinstance(events.finished["poison"].error, ForwardError)
    assert events.finished["poison"].record.finish_reason is FinishReason.ERROR
    for request in good:
        assert events.tokens[request.request_id] == expected_output(request.prompt_ids, 4)
    assert loop.forward_errors_total == 2


def test_steps_that_get_nobody_anywhere_are_counted_in_a_row() -> None:
    """A model that fails every forward is not making progress; one success ends the row."""
    loop, events = make_loop(make_scheduler(), FailingRunner()), Collector()
    for _ in range(3):
        loop.add(make_request("poison", 5), events)
        run_to_end(loop)
    failed = loop.failed_steps_in_a_row

    loop.add(make_request("good", 5, max_tokens=1), events)
    run_to_end(loop)

    assert (failed, loop.failed_steps_in_a_row) == (3, 0)


class NoTokenRunner(FakeRunner):
    """Finds that each row's own limits leave nothing to sample."""

    def run(self, plan: StepPlan) -> list[RowResult]:
        return [ForwardError("nothing left", kind="no_token") for _ in super().run(plan)]


def test_requests_that_rule_out_every_token_say_nothing_of_the_model() -> None:
    """Three of them in a row once made an engine look as if it failed every forward."""
    loop, events = make_loop(make_scheduler(), NoTokenRunner()), Collector()
    for name in "abc":
        loop.add(make_request(name, 5), events)
        run_to_end(loop)

    assert all(event.error is not None for event in events.finished.values())
    assert (len(events.finished), loop.failed_steps_in_a_row) == (3, 0)


class BadLogitsRunner(FakeRunner):
    """Gives the poisoned row no number, and leaves rubbish in its blocks."""

    def run(self, plan: StepPlan) -> list[RowResult]:
        results = super().run(plan)
        return [
            ForwardError("not numbers", kind="bad_logits")
            if row.sequence.request_id == "poison"
            else result
            for row, result in zip(plan.rows, results, strict=True)
        ]


def test_bad_logits_fail_one_row_and_its_blocks_are_never_matched() -> None:
    """An equal prompt afterwards starts cold: nothing of the failed row is cached."""
    scheduler = make_scheduler()
    loop, events = make_loop(scheduler, BadLogitsRunner()), Collector()
    prompt = list(range(12))
    loop.add(make_request("poison", prompt), events)
    run_to_end(loop)
    loop.add(make_request("next", prompt, max_tokens=2), events)

    run_to_end(loop)

    assert isinstance(events.finished["poison"].error, ForwardError)
    assert events.finished["next"].record.num_cached_tokens == 0
    assert events.tokens["next"] == expected_output(tuple(prompt), 2)


def test_a_sink_that_raises_loses_only_its_own_request(caplog: pytest.LogCaptureFixture) -> None:
    """The loop outlives the caller's code."""
    loop, events = make_loop(make_scheduler()), Collector()

    def broken(event: EngineEvent) -> None:
        raise RuntimeError("no room for tokens")

    good = make_request("good", 5, max_tokens=4)
    loop.add(make_request("bad", 5, max_tokens=4), broken)
    loop.add(good, events)

    run_to_end(loop)

    assert events.tokens["good"] == expected_output(good.prompt_ids, 4)
    assert "the event sink of request bad failed" in caplog.text


def test_records_time_queue_first_token_and_gaps_by_the_given_clock() -> None:
    """TTFT counts the queue; TPOT leaves out the token that prefill yields."""
    clock = FakeClock()

    def pass_time(plan: StepPlan) -> None:
        clock.now_s += 1.0

    loop = make_loop(make_scheduler(), FakeRunner(on_run=pass_time), clock=clock)
    events = Collector()
    loop.add(make_request("a", 5, max_tokens=3, arrival_s=98.0), events)

    run_to_end(loop)

    timing = events.finished["a"].record.timing
    assert timing.queue_s == 2.0
    assert timing.ttft_s == 3.0
    assert timing.tpot_s == 1.0
    assert timing.e2e_s == 5.0


def test_a_cost_model_on_a_virtual_clock_drives_the_same_loop() -> None:
    """Seconds come from the runner's own arithmetic; no model, no sleep."""
    clock = FakeClock()

    def cost(plan: StepPlan) -> None:
        clock.now_s += 0.01 + 0.001 * plan.num_tokens

    log = StepLog(capacity=3)
    loop = StepLoop(
        scheduler=make_scheduler(),
        runner=FakeRunner(on_run=cost),
        clock=clock,
        eos_token_ids=frozenset(),
        step_log=log,
    )
    events = Collector()
    loop.add(make_request("a", 10, max_tokens=5), events)
    loop.add(make_request("b", 7, max_tokens=5), events)

    assert run_to_end(loop) == 5

    steps = log.snapshot()
    assert [record.step for record in steps] == [2, 3, 4]
    assert steps[-1].seconds == pytest.approx(0.012)
    assert (steps[-1].num_rows, steps[-1].num_decode_tokens, steps[-1].num_prompt_tokens) == (
        2,
        2,
        0,
    )
    assert steps[-1].num_kv_positions == 14 + 11
    assert json.loads(log.to_json_lines().splitlines()[0])["step"] == 2


def test_prefill_is_logged_apart_from_decode() -> None:
    """A prompt of ten is nine prompt tokens and one that is sampled after."""
    log = StepLog()
    loop = StepLoop(
        scheduler=make_scheduler(),
        runner=FakeRunner(),
        clock=FakeClock(),
        eos_token_ids=frozenset(),
        step_log=log,
    )
    loop.add(make_request("a", 10, max_tokens=1), Collector())

    run_to_end(loop)

    assert (log.snapshot()[0].num_prompt_tokens, log.snapshot()[0].num_decode_tokens) == (9, 1)


def test_ending_an_unknown_request_is_ignored() -> None:
    """It may just have ended by itself."""
    loop = make_loop(make_scheduler())

    loop.end("nobody", FinishReason.ABORT)

    assert not loop.scheduler.has_work


def test_abandoning_tells_everybody_without_the_books() -> None:
    """When the books themselves broke, callers still hear of it."""
    loop, events = make_loop(make_scheduler()), Collector()
    loop.add(make_request("a"), events)
    loop.add(make_request("b"), events)
    error = ForwardError("it broke", kind="exception")

    loop.abandon_all(error)

    ended: list[FinishedEvent] = list(events.finished.values())
    assert [event.error for event in ended] == [error, error]
