"""tenacity with our wait and stop."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.call_records import AttemptOutcome as Outcome
from failsoft.config.settings import RetryConfig
from failsoft.errors import RungFailedError
from failsoft.fallback.failure import Action, Failure
from failsoft.fallback.retry import full_jitter_s, make_retrying
from failsoft.fallback.surroundings import Surroundings
from tests.fallback.fake_time import FakeTime

CONFIG = RetryConfig(attempts=4, base_s=0.2, cap_s=0.5)


def failed(action: Action, retry_after_s: float | None = None) -> RungFailedError:
    """Return a failed attempt."""
    failure = Failure(
        outcome=Outcome.HTTP_STATUS, action=action, detail="x", retry_after_s=retry_after_s
    )
    return RungFailedError(rung="a", cause=failure)


class Trials:
    """Counts attempts that all fail."""

    def __init__(self, error: BaseException, **limits: bool) -> None:
        self.time = FakeTime()
        self.count = 0
        self.waits: list[float] = []
        self._error = error
        self._limits = limits

    async def attempt(self) -> None:
        self.count += 1
        raise self._error

    def may_wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        return self._limits.get("may_wait", True)

    def run(self) -> None:
        """Drive them until they give up with the error itself."""
        retrying = make_retrying(
            CONFIG,
            may_wait=self.may_wait,
            may_spend=lambda: self._limits.get("may_spend", True),
            surroundings=Surroundings(clock=self.time, random=lambda: 0.5, sleep=self.time.sleep),
        )
        with pytest.raises(type(self._error)) as caught:
            asyncio.run(retrying(self.attempt))
        assert caught.value is self._error


def test_waits_double_to_the_cap_with_full_jitter() -> None:
    """Half of 0.2, 0.4 and the cap 0.5; four attempts in all."""
    trials = Trials(failed(Action.RETRY))

    trials.run()

    assert trials.count == 4
    assert trials.time.slept == pytest.approx([0.1, 0.2, 0.25])


@pytest.mark.parametrize("action", [Action.STEP_DOWN, Action.GIVE_UP])
def test_what_no_retry_mends_is_tried_once(action: Action) -> None:
    """No sleep either."""
    trials = Trials(failed(action))

    trials.run()

    assert (trials.count, trials.time.slept) == (1, [])


@pytest.mark.parametrize("limit", ["may_wait", "may_spend"])
def test_no_time_or_no_budget_ends_it_at_once(limit: str) -> None:
    """Before any sleep."""
    trials = Trials(failed(Action.RETRY), **{limit: False})

    trials.run()

    assert (trials.count, trials.time.slept) == (1, [])


def test_what_the_server_asks_is_a_floor_of_the_wait() -> None:
    """Jitter comes on top, so that its clients do not come back together."""
    trials = Trials(failed(Action.RETRY, retry_after_s=3.0))

    trials.run()

    assert all(3.0 <= wait_s <= 3.0 + CONFIG.base_s for wait_s in trials.time.slept)


def test_a_cancel_is_no_failure() -> None:
    """It goes straight through."""
    trials = Trials(asyncio.CancelledError())

    trials.run()

    assert trials.count == 1


@given(st.integers(1, 1000), st.floats(0, 1, exclude_max=True))
def test_jitter_stays_below_its_ceiling(num_failed: int, draw: float) -> None:
    """Also after a thousand failures."""
    wait_s = full_jitter_s(num_failed, base_s=0.2, cap_s=5.0, random=lambda: draw)

    assert 0 <= wait_s <= min(5.0, 0.2 * 2 ** min(num_failed - 1, 60))
