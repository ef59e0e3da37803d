"""The engine's thread: submit, abort, drain, close and death, over a fake model."""

import random
import threading
import time
import traceback
from collections.abc import Callable

import psutil
import pytest

from failsoft.config.engine import EngineConfig
from failsoft.engine.engine import Engine, EngineLimits
from failsoft.engine.sequence import RowResult, StepPlan
from failsoft.errors import (
    EngineStoppedError,
    InvalidRequestError,
    QueueFullError,
    RequestTooLongError,
)
from failsoft.records import FinishReason
from tests.engine.builders import (
    BLOCK_SIZE,
    Collector,
    FakeRunner,
    expected_output,
    make_request,
    wait_until,
)

VOCAB = 10_000_000


def make_engine(
    runner: FakeRunner | None = None,
    *,
    step_s: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
    **settings: object,
) -> Engine:
    if runner is None:
        runner = FakeRunner(on_run=lambda plan: time.sleep(step_s))
    options = {"max_running": 4, "block_size": BLOCK_SIZE, **settings}
    return Engine(
        runner=runner,
        num_blocks=64,
        limits=EngineLimits(vocab_size=VOCAB, max_model_len=200),
        eos_token_ids=frozenset(),
        version_digest="v",
        config=EngineConfig(**options),  # type: ignore[arg-type]
        clock=clock,
    )


def test_many_requests_each_get_their_own_text() -> None:
    """More requests than slots, all at once."""
    events = Collector()
    requests = [make_request(f"r{n}", 3 + n, max_tokens=5, arrival_s=n) for n in range(20)]
    with make_engine() as engine:
        for request in requests:
            engine.submit(request, events)
        events.wait_finished(*(request.request_id for request in requests))

        assert engine.stats().num_blocks_used == 0

    for request in requests:
        assert events.tokens[request.request_id] == expected_output(request.prompt_ids, 5)


def test_an_abort_takes_effect_within_one_step() -> None:
    """Blocks are free again and the record says abort."""
    events, runner = Collector(), FakeRunner(on_run=lambda plan: time.sleep(0.01))
    with make_engine(runner) as engine:
        engine.submit(make_request("a", 5, max_tokens=150), events)
        events.wait_tokens("a", 3)

        engine.abort("a")
        steps_then = len(runner.plans)
        events.wait_finished("a")

        assert len(runner.plans) <= steps_then + 1
        assert events.finished["a"].record.finish_reason is FinishReason.ABORT
        assert engine.stats().num_blocks_used == 0
        assert engine.stats().num_running == 0


def test_a_queued_request_can_be_aborted() -> None:
    """It never ran: no first token, no output."""
    events = Collector()
    with make_engine(step_s=0.01, max_running=1) as engine:
        engine.submit(make_request("a", 5, max_tokens=100), events)
        events.wait_tokens("a", 1)
        engine.submit(make_request("b", 5), events)

        engine.abort("b")
        events.wait_finished("b")

        assert events.finished["b"].record.timing.ttft_s is None
        assert "b" not in events.tokens


def test_a_full_queue_refuses_and_says_when_to_come_back() -> None:
    """What is refused leaves no trace; places free up again."""
    events = Collector()
    with make_engine(step_s=0.005, max_running=1, max_waiting=2) as engine:
        for name in ("a", "b", "c"):
            engine.submit(make_request(name, 5, max_tokens=20), events)

        with pytest.raises(QueueFullError) as caught:
            engine.submit(make_request("d", 5), events)

        assert (caught.value.num_waiting, caught.value.limit) == (2, 2)
        assert caught.value.retry_after_s >= 1
        events.wait_finished("a", "b", "c")
        engine.submit(make_request("d", 5), events)
        events.wait_finished("d")


@pytest.mark.parametrize(
    ("prompt", "kind"),
    [([1, -1], InvalidRequestError), ([1, VOCAB], InvalidRequestError), (300, RequestTooLongError)],
    ids=["negative id", "id beyond the vocabulary", "too long"],
)
def test_what_cannot_run_is_refused_at_submit(
    prompt: int | list[int], kind: type[InvalidRequestError]
) -> None:
    """The error names the field."""
    with make_engine() as engine, pytest.raises(kind) as caught:
        engine.submit(make_request("a", prompt), Collector())

    assert caught.value.param == "prompt"


def test_an_id_in_use_is_refused() -> None:
    """Two live requests of one id could not be told apart."""
    events = Collector()
    with make_engine(step_s=0.01) as engine:
        engine.submit(make_request("a", 5, max_tokens=50), events)

        with pytest.raises(InvalidRequestError, match="in use"):
            engine.submit(make_request("a", 5), events)


def test_drain_lets_running_requests_finish_and_refuses_new_ones() -> None:
    """True means that all ended by themselves."""
    events = Collector()
    engine = make_engine(step_s=0.005)
    request = make_request("a", 5, max_tokens=10)
    engine.submit(request, events)

    assert engine.drain(10.0) is True

    assert events.tokens["a"] == expected_output(request.prompt_ids, 10)
    with pytest.raises(EngineStoppedError):
        engine.submit(make_request("b", 5), events)
    engine.close()


def test_drain_fails_what_outlives_it() -> None:
    """The caller hears why, instead of waiting for ever."""
    events = Collector()
    engine = make_engine(step_s=0.02)
    engine.submit(make_request("a", 5, max_tokens=190), events)

    assert engine.drain(0.1) is False

    assert isinstance(events.finished["a"].error, EngineStoppedError)


class BuggyRunner(FakeRunner):
    def run(self, plan: StepPlan) -> list[RowResult]:
        raise ZeroDivisionError("a bug of ours")


def test_a_bug_in_the_loop_tells_every_caller_and_stops_taking_requests() -> None:
    """Nobody waits for a dead engine."""
    events = Collector()
    engine = make_engine(BuggyRunner())
    engine.submit(make_request("a", 5), events)
    events.wait_finished("a")
    wait_until(lambda: not engine.stats().is_alive)

    assert isinstance(events.finished["a"].error, EngineStoppedError)
    with pytest.raises(EngineStoppedError, match="ZeroDivisionError"):
        engine.submit(make_request("b", 5), events)


def test_who_is_in_the_inbox_when_the_engine_dies_is_told_too() -> None:
    """Submitted while the fatal forward ran."""
    events = Collector()
    engines: list[Engine] = []

    def die(plan: StepPlan) -> None:
        engines[0].submit(make_request("b", 5), events)
        raise ZeroDivisionError("a bug of ours")

    engines.append(make_engine(FakeRunner(on_run=die)))
    engines[0].submit(make_request("a", 5), events)
    events.wait_finished("a", "b")

    assert isinstance(events.finished["b"].error, EngineStoppedError)


def test_a_dead_engine_refuses_without_keeping_a_trace_of_each_caller() -> None:
    """One instance raised again and again once held every caller's frames."""
    events = Collector()
    engine = make_engine(BuggyRunner())
    engine.submit(make_request("a", 5), events)
    events.wait_finished("a")
    wait_until(lambda: not engine.stats().is_alive)
    errors = []
    for number in range(3):
        with pytest.raises(EngineStoppedError) as caught:
            engine.submit(make_request(f"b{number}", 5), events)
        errors.append(caught.value)

    assert len(set(map(id, errors))) == 3
    assert len({len(traceback.extract_tb(error.__traceback__)) for error in errors}) == 1


def test_an_abort_spares_the_next_request_of_that_id() -> None:
    """Aborts once came after all submits, so a late one hit whoever reused the id."""
    events = Collector()
    is_held = threading.Event()
    go_on = threading.Event()

    def hold(plan: StepPlan) -> None:
        if plan.step == 0:
            is_held.set()
            assert go_on.wait(10)

    with make_engine(FakeRunner(on_run=hold)) as engine:
        engine.submit(make_request("other", 5, max_tokens=1), events)
        assert is_held.wait(10)
        engine.abort("a")
        engine.submit(make_request("a", 5), events)
        go_on.set()
        events.wait_finished("a")

    assert events.finished["a"].record.finish_reason is FinishReason.LENGTH


def test_any_salt_is_just_a_salt() -> None:
    """Half a surrogate pair has no UTF-8; it once killed the engine's thread."""
    events = Collector()
    with make_engine() as engine:
        engine.submit(make_request("a", 5, cache_salt="\ud800"), events)
        events.wait_finished("a")

    assert events.finished["a"].record.finish_reason is FinishReason.LENGTH


def test_an_engine_that_was_idle_for_long_is_not_stuck_at_its_next_request() -> None:
    """Between submit and the thread's waking, progress once counted from before the idleness."""
    now_s = 0.0
    go_on = threading.Event()

    def clock() -> float:
        if threading.current_thread().name == "failsoft-engine" and now_s > 0:
            assert go_on.wait(10)
        return now_s

    events = Collector()
    with make_engine(clock=clock) as engine:
        now_s = 3600.0
        engine.submit(make_request("a", 5), events)

        since = engine.stats().seconds_since_progress

        go_on.set()
        events.wait_finished("a")
    assert since == 0.0


def test_an_idle_engine_burns_no_cpu() -> None:
    """Half a second of idling costs less than 20 ms of processor time."""
    events = Collector()
    with make_engine() as engine:
        engine.submit(make_request("a", 5), events)
        events.wait_finished("a")
        process = psutil.Process()
        before = sum(process.cpu_times()[:2])

        time.sleep(0.5)

        assert sum(process.cpu_times()[:2]) - before < 0.02


def test_no_progress_is_visible_while_work_is_there() -> None:
    """A forward that hangs shows as seconds without progress, idleness does not."""
    with make_engine(step_s=0.3) as engine:
        assert engine.stats().seconds_since_progress is None
        events = Collector()
        engine.submit(make_request("a", 5, max_tokens=2), events)
        time.sleep(0.2)

        since = engine.stats().seconds_since_progress

        assert since is not None
        assert since > 0.1
        events.wait_finished("a")


def test_random_aborts_leave_no_block_behind() -> None:
    """500 requests, a third aborted at random moments (fixed seed)."""
    rng = random.Random(5)
    events = Collector()
    with make_engine(max_waiting=1000) as engine:
        names = [f"r{n}" for n in range(500)]
        for name in names:
            request = make_request(name, rng.randrange(1, 30), max_tokens=rng.randrange(1, 12))
            engine.submit(request, events)
            if rng.random() < 0.33:
                engine.abort(rng.choice(names[: names.index(name) + 1]))
        events.wait_finished(*names)

        stats = engine.stats()
        assert (stats.num_blocks_used, stats.num_running, stats.num_waiting) == (0, 0, 0)
