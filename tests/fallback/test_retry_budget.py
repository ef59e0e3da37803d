"""Extra upstream calls as a share of live traffic."""

from hypothesis import given
from hypothesis import strategies as st

from failsoft.fallback.retry_budget import FLOOR, WINDOW_S, RetryBudget
from failsoft.fallback.rolling_window import RollingWindow
from tests.fallback.fake_time import FakeTime


def test_quiet_times_have_a_floor() -> None:
    """One call alone may still be retried."""
    budget = RetryBudget(ratio=0.1, clock=FakeTime())
    budget.on_call()

    granted = [budget.try_spend(is_last_rung=True) for _ in range(FLOOR + 1)]

    assert granted == [True] * FLOOR + [False]
    assert budget.refused_total == 1


def test_the_last_rung_finds_budget_the_others_may_not_take() -> None:
    """A retry above saves a better answer, one on the last rung an answer at all."""
    budget = RetryBudget(ratio=0.1, clock=FakeTime())
    for _ in range(100):
        budget.on_call()

    above = sum(budget.try_spend(is_last_rung=False) for _ in range(20))
    last = sum(budget.try_spend(is_last_rung=True) for _ in range(20))

    assert (above, last) == (5, 5)


def test_total_outage_at_200_calls_a_second_stays_within_a_tenth() -> None:
    """200 calls/s fail for 60 s, each would retry 5 times: at most 1.1 upstream calls per call."""
    time = FakeTime()
    budget = RetryBudget(ratio=0.1, clock=time)
    calls = upstream = 0
    for _ in range(60 * 200):
        time.advance(1 / 200)
        budget.on_call()
        calls += 1
        upstream += 1 + sum(budget.try_spend(is_last_rung=True) for _ in range(5))

    assert upstream <= 1.1 * calls + FLOOR


def test_after_an_outage_there_is_no_hoard_to_spend() -> None:
    """Quiet seconds save nothing up, so recovery sees no spike."""
    time = FakeTime()
    budget = RetryBudget(ratio=0.1, clock=time)
    for _ in range(1000):
        budget.on_call()
    time.advance(WINDOW_S + 1)

    granted = sum(budget.try_spend(is_last_rung=True) for _ in range(100))

    assert granted == FLOOR


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 5)), max_size=60))
def test_a_rolling_window_counts_what_an_exact_one_counts(
    steps: list[tuple[float, int]],
) -> None:
    """It holds all of the last 9/10 of its length and nothing older than its length."""
    time = FakeTime()
    window = RollingWindow(window_s=10.0, num_counts=1, clock=time)
    entries: list[tuple[float, int]] = []
    for wait_s, amount in steps:
        time.advance(wait_s)
        window.add(0, amount)
        entries.append((time.now_s, amount))

        total = window.total(0)

        assert total >= sum(n for at_s, n in entries if at_s > time.now_s - 8.99)
        assert total <= sum(n for at_s, n in entries if at_s >= time.now_s - 10.01)
