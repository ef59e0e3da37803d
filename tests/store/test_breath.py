"""A thread that works for long lets others in, often enough and no oftener."""

import sys

from failsoft.store.breath import _BREATH_S, _WORK_S, Breath


class Hands:
    """A clock that stands still until it is moved, and a note of each sleep."""

    def __init__(self) -> None:
        self.now_s = 5.0
        self.slept_s: list[float] = []

    def clock(self) -> float:
        """Return the time."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Note *seconds*, and let them pass."""
        self.slept_s.append(seconds)
        self.now_s += seconds


def test_a_breath_is_due_after_work_and_then_after_as_much_again() -> None:
    """The breath itself is no work; a real sleep lets go of the lock, 0 s would not."""
    hands = Hands()
    breath = Breath(hands.clock, hands.sleep)
    num_taken = []

    for _ in range(5):
        hands.now_s += 0.6 * _WORK_S
        breath.take_when_due()
        num_taken.append(len(hands.slept_s))

    assert num_taken == [0, 1, 1, 2, 2]
    assert set(hands.slept_s) == {_BREATH_S}
    assert _BREATH_S > 0


def test_a_stretch_longer_than_the_switch_interval_has_been_a_breath() -> None:
    """Beside a thread that computes all the time, each breath cost the writer 5 ms more."""
    hands = Hands()
    breath = Breath(hands.clock, hands.sleep)

    hands.now_s += sys.getswitchinterval() + _WORK_S
    breath.take_when_due()
    assert hands.slept_s == []

    hands.now_s += 1.1 * _WORK_S
    breath.take_when_due()
    assert hands.slept_s == [_BREATH_S]
