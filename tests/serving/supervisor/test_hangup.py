"""A closed terminal and a wish to read the settings again are the same signal."""

import pytest

from failsoft.serving.supervisor.hangup import Hangup


def hangup(there: list[bool]) -> Hangup:
    """Return one whose terminal is there as *there* says now; it was at the start."""
    return Hangup(lambda: there[0])


def test_a_signal_after_a_look_that_missed_the_terminal_still_means_it_was_closed() -> None:
    """The shell hears of the loss first and hands it on: a look may fall in between."""
    there = [True]
    told = hangup(there)
    there[0] = False
    told.look()

    assert told.is_real


def test_a_terminal_that_is_long_gone_is_forgotten() -> None:
    """After ``disown`` and a logout SIGHUP is a wish again."""
    there = [True]
    told = hangup(there)
    there[0] = False
    told.look()
    told.look()

    assert not told.is_real


@pytest.mark.parametrize("is_there", [True, False])
def test_without_a_loss_it_is_a_wish(is_there: bool) -> None:
    """With a terminal that is there, or where there never was one."""
    told = hangup([is_there])
    told.look()

    assert not told.is_real
