"""The clocks of one attempt, cut from one deadline."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.config.settings import TimeoutConfig
from failsoft.fallback.deadline import (
    CACHE_RESERVE_S,
    MAX_RESERVE_RATIO,
    Clocks,
    Deadline,
    clocks_for,
    is_silence_evidence,
)
from tests.fallback.fake_time import FakeTime

TIMEOUTS = TimeoutConfig(connect_s=2.0, first_token_s=10.0, gap_s=5.0)


def make_clocks(
    left_s: float,
    *,
    reserve_s: float = 0.0,
    cache_below: bool = False,
    timeouts: TimeoutConfig = TIMEOUTS,
) -> Clocks:
    """Return the clocks with *left_s* left, starting at 0."""
    return clocks_for(
        timeouts,
        deadline=Deadline(at_s=left_s, clock=FakeTime(0.0)),
        reserve_s=reserve_s,
        cache_below=cache_below,
    )


def test_with_time_to_spare_the_clocks_are_the_configured_ones() -> None:
    """Nothing is cut."""
    clocks = make_clocks(60)

    assert (clocks.connect_s, clocks.first_token_s, clocks.gap_s) == (2.0, 10.0, 5.0)
    assert (clocks.until_s, clocks.is_deadline) == (60, True)


def test_the_last_rung_gets_all_that_remains() -> None:
    """There is nobody to leave time for."""
    assert make_clocks(3).first_token_s == 3


@pytest.mark.parametrize(("reserve_s", "first_token_s"), [(1.0, 7.0), (6.0, 4.0), (math.inf, 4.0)])
def test_an_upper_rung_leaves_room_before_its_first_token(
    reserve_s: float, first_token_s: float
) -> None:
    """What the rungs below usually need, half of what remains at most."""
    clocks = make_clocks(8, reserve_s=reserve_s)

    assert clocks.first_token_s == first_token_s
    assert clocks.until_s == 8, "once its tokens flow it may go on"


def test_a_cached_rung_below_has_its_read_reserved() -> None:
    """It needs milliseconds, but those for sure."""
    assert make_clocks(8, cache_below=True).until_s == pytest.approx(8 - CACHE_RESERVE_S)


def test_an_own_total_clock_is_not_the_deadline() -> None:
    """Its end is evidence against the endpoint; the deadline's is not."""
    timeouts = TimeoutConfig(total_s=4.0)

    clocks = make_clocks(8, timeouts=timeouts)

    assert (clocks.until_s, clocks.is_deadline) == (4.0, False)
    assert make_clocks(3, timeouts=timeouts).is_deadline


@given(st.floats(0.001, 1000), st.floats(0, 1000) | st.just(math.inf), st.booleans())
def test_no_clock_outlives_the_deadline(left_s: float, reserve_s: float, cache: bool) -> None:
    """And the rungs below get their share."""
    clocks = make_clocks(left_s, reserve_s=reserve_s, cache_below=cache)

    assert clocks.until_s <= left_s
    assert clocks.connect_s <= max(clocks.until_s, 0)
    kept_s = min(reserve_s, MAX_RESERVE_RATIO * clocks.until_s)
    assert clocks.first_token_s <= clocks.until_s - kept_s + 1e-9


@pytest.mark.parametrize(
    ("waited_s", "typical_s", "is_evidence"),
    [
        (10.0, None, True),
        (5.0, None, False),
        (5.0, 0.05, True),
        (0.9, 0.05, False),
        (5.0, 2.0, False),
        (10.0, 9.0, True),
    ],
)
def test_silence_counts_when_it_is_long_for_this_endpoint(
    waited_s: float, typical_s: float | None, is_evidence: bool
) -> None:
    """A caller's tiny deadline never counts; 100 times the usual first token does."""
    assert (
        is_silence_evidence(waited_s, first_token_s=10.0, typical_ttft_s=typical_s) == is_evidence
    )
