"""Steps are counted by what they hold, and gaps between a request's tokens."""

import pytest

from failsoft.engine.step_stats import Tally
from failsoft.records import Distribution
from tests.engine.builders import (
    Collector,
    FakeClock,
    FakeRunner,
    make_loop,
    make_request,
    make_scheduler,
    run_to_end,
)


def count(distribution: Distribution) -> int:
    """How many values it holds."""
    return sum(distribution.counts)


def test_a_value_at_a_bound_is_within_it() -> None:
    """As Prometheus has it: ``le`` is less or equal."""
    tally = Tally((1, 2))
    for value in (0.5, 1, 1.5, 2, 3):
        tally.add(value)

    assert tally.read() == Distribution(bounds=(1, 2), counts=(2, 2, 1), total=8)


def test_steps_are_counted_by_what_they_hold() -> None:
    """A prompt in two chunks, then decodes; a newcomer's prompt beside them is mixed."""
    loop, events = make_loop(make_scheduler(max_step_tokens=8)), Collector()
    loop.add(make_request("a", 12, max_tokens=4), events)
    loop.step()
    loop.step()
    loop.step()
    loop.add(make_request("b", 6, max_tokens=1), events)
    loop.step()

    run_to_end(loop)

    stats = loop.tallies.read()
    kinds = {kind: count(seconds) for kind, seconds in stats.seconds.items()}
    assert kinds == {"prefill": 2, "decode": 2, "mixed": 1}
    assert stats.tokens.total == 12 + 3 + 6
    assert stats.rows.total == 2 + 1 + 2 + 1


def test_gaps_lie_between_tokens_of_one_request() -> None:
    """Four tokens have three gaps; the wait for the first is none of them."""
    clock = FakeClock()

    def pass_time(plan: object) -> None:
        clock.now_s += 0.25

    loop = make_loop(make_scheduler(), FakeRunner(on_run=pass_time), clock=clock)
    for name in ("a", "b"):
        loop.add(make_request(name, 4, max_tokens=4), Collector())

    run_to_end(loop)

    gaps = loop.tallies.read().gaps_s
    assert count(gaps) == 6
    assert gaps.total == pytest.approx(6 * 0.25)
