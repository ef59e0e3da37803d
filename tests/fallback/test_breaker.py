"""When an endpoint is left alone, and when it is asked again."""

import pytest

from failsoft.config.settings import BreakerConfig
from failsoft.fallback.breaker import (
    CONSECUTIVE_TRANSPORT,
    MAX_OPEN_S,
    STUCK_RUNNING,
    STUCK_STREAMS,
    Breaker,
    BreakerState,
    Permit,
)
from tests.fallback.fake_time import FakeTime

CONFIG = BreakerConfig(failure_ratio=0.5, min_calls=10, window_s=30.0, open_s=10.0)


def make_breaker(time: FakeTime, config: BreakerConfig = CONFIG) -> Breaker:
    """Return a breaker without jitter."""
    return Breaker(config, slow_s=2.0, silent_s=5.0, lease_s=10.0, clock=time, random=lambda: 0.0)


def acquire(breaker: Breaker) -> Permit:
    """Return a permit that must be there."""
    permit = breaker.acquire()
    assert permit is not None
    return permit


def is_state(breaker: Breaker, state: BreakerState) -> bool:
    """Return whether it is in *state* now."""
    return breaker.state is state


def open_it(breaker: Breaker) -> None:
    """Fail until it opens."""
    while not is_state(breaker, BreakerState.OPEN):
        acquire(breaker).fail()


def test_half_of_a_full_sample_opens_it() -> None:
    """Below the minimum sample it stays closed, however bad."""
    breaker = make_breaker(FakeTime())
    for _ in range(9):
        acquire(breaker).fail()
    assert is_state(breaker, BreakerState.CLOSED)

    acquire(breaker).fail()

    assert is_state(breaker, BreakerState.OPEN)
    assert breaker.acquire() is None


def test_failures_below_the_ratio_keep_it_closed() -> None:
    """30 % failures in every order that keeps each prefix below one half."""
    breaker = make_breaker(FakeTime())
    for number in range(200):
        permit = acquire(breaker)
        if number % 10 in (3, 6, 9):
            permit.fail()
        else:
            permit.succeed(ttft_s=0.1)

    assert is_state(breaker, BreakerState.CLOSED)


def test_failures_leave_the_window_with_time() -> None:
    """Nine failures of long ago do not count against today."""
    time = FakeTime()
    breaker = make_breaker(time)
    for _ in range(9):
        acquire(breaker).fail()
    time.advance(31)

    acquire(breaker).fail()

    assert is_state(breaker, BreakerState.CLOSED)


def test_slow_first_tokens_count_as_failures() -> None:
    """Users meet slow long before gone."""
    breaker = make_breaker(FakeTime())

    for _ in range(10):
        acquire(breaker).succeed(ttft_s=2.5)

    assert is_state(breaker, BreakerState.OPEN)


def test_connections_in_a_row_without_reply_open_it_below_the_sample() -> None:
    """A dead host needs no statistics."""
    breaker = make_breaker(FakeTime())

    for _ in range(CONSECUTIVE_TRANSPORT):
        acquire(breaker).fail(is_transport=True)

    assert is_state(breaker, BreakerState.OPEN)


def test_a_reply_in_between_breaks_the_row() -> None:
    """Any answer, also a bad one, shows that the host is there."""
    breaker = make_breaker(FakeTime())

    for _ in range(3):
        acquire(breaker).fail(is_transport=True)
        acquire(breaker).fail(is_transport=True)
        acquire(breaker).fail(is_transport=False)

    assert is_state(breaker, BreakerState.CLOSED)


def test_what_tells_nothing_never_counts() -> None:
    """Caller faults, callers who left, sheds, tiny deadlines."""
    breaker = make_breaker(FakeTime())

    for _ in range(1000):
        acquire(breaker).ignore()

    assert is_state(breaker, BreakerState.CLOSED)


def test_fifty_parallel_callers_send_one_probe() -> None:
    """A peer's breaker let all 50 through to the dead endpoint."""
    time = FakeTime()
    breaker = make_breaker(time)
    open_it(breaker)
    time.advance(10.1)

    permits = [breaker.acquire() for _ in range(50)]

    assert sum(permit is not None for permit in permits) == 1
    assert permits[0] is not None
    assert permits[0].is_probe


def test_an_answered_probe_closes_it() -> None:
    """And the old failures are forgotten."""
    time = FakeTime()
    breaker = make_breaker(time)
    open_it(breaker)
    time.advance(10.1)

    acquire(breaker).succeed(ttft_s=0.1)

    assert is_state(breaker, BreakerState.CLOSED)
    acquire(breaker).fail()
    assert is_state(breaker, BreakerState.CLOSED)


def test_failed_probes_double_the_open_time_up_to_a_cap() -> None:
    """10, 20, 40, … s, at most the cap."""
    time = FakeTime()
    breaker = make_breaker(time)
    open_it(breaker)
    waits = []
    for _ in range(8):
        wait_s = breaker.retry_in_s
        assert wait_s is not None
        waits.append(wait_s)
        time.advance(wait_s)
        acquire(breaker).fail()

    assert waits == pytest.approx([10, 20, 40, 80, 160, MAX_OPEN_S, MAX_OPEN_S, MAX_OPEN_S])


def test_a_lost_probe_cannot_block() -> None:
    """Its lease runs out and the next caller probes."""
    time = FakeTime()
    breaker = make_breaker(time)
    open_it(breaker)
    time.advance(10.1)
    lost = acquire(breaker)
    time.advance(9.9)
    assert breaker.acquire() is None
    time.advance(0.2)

    second = acquire(breaker)

    assert second.is_probe
    lost.fail()
    assert is_state(breaker, BreakerState.HALF_OPEN)
    second.succeed()
    assert is_state(breaker, BreakerState.CLOSED)


def test_a_probe_called_back_frees_its_place_at_once() -> None:
    """Its caller left: nothing was learnt."""
    time = FakeTime()
    breaker = make_breaker(time)
    open_it(breaker)
    time.advance(10.1)

    acquire(breaker).ignore()

    assert acquire(breaker).is_probe


def test_news_from_before_a_change_is_no_news() -> None:
    """A call that began before it opened says nothing about now."""
    time = FakeTime()
    breaker = make_breaker(time)
    early = acquire(breaker)
    open_it(breaker)
    time.advance(10.1)
    probe = acquire(breaker)

    early.succeed()

    assert is_state(breaker, BreakerState.HALF_OPEN)
    probe.succeed()


def test_running_without_a_token_is_stuck() -> None:
    """No attempt has ended yet, so no ratio could tell."""
    time = FakeTime()
    breaker = make_breaker(time)
    for _ in range(STUCK_RUNNING):
        acquire(breaker)
        breaker.on_wait_begin()
    time.advance(5.1)

    assert breaker.acquire() is None
    assert is_state(breaker, BreakerState.OPEN)


def test_a_token_from_any_of_them_means_it_is_not_stuck() -> None:
    """Slow is not stuck."""
    time = FakeTime()
    breaker = make_breaker(time)
    for _ in range(STUCK_RUNNING):
        acquire(breaker)
        breaker.on_wait_begin()
    time.advance(5.1)
    breaker.on_token()

    assert breaker.acquire() is not None


def test_streams_that_fall_silent_together_are_stuck() -> None:
    """Their callers' next requests go elsewhere at once, not after a first-token clock each."""
    breaker = make_breaker(FakeTime())
    for _ in range(STUCK_STREAMS):
        acquire(breaker).fail(is_gap=True)

    assert is_state(breaker, BreakerState.OPEN)


def test_streams_that_fall_silent_while_others_run_are_not_stuck() -> None:
    """A token in between shows that the endpoint works; the ratio judges the rest."""
    breaker = make_breaker(FakeTime())
    for _ in range(STUCK_STREAMS):
        acquire(breaker).fail(is_gap=True)
        breaker.on_token()

    assert is_state(breaker, BreakerState.CLOSED)


def test_it_tells_of_its_changes() -> None:
    """Operators see when and why."""
    changes: list[tuple[BreakerState, str]] = []
    time = FakeTime()
    breaker = Breaker(
        CONFIG,
        slow_s=2.0,
        silent_s=5.0,
        lease_s=10.0,
        clock=time,
        random=lambda: 1.0,
        on_change=lambda state, why: changes.append((state, why)),
    )

    open_it(breaker)

    assert changes == [(BreakerState.OPEN, "failures: 10 of 10 calls")]
    assert breaker.retry_in_s == pytest.approx(11.0)
