"""Several sources at once: nobody waits for the one that is late."""

import threading
import time

import pytest

from failsoft.dashboard.sources.together import together
from failsoft.dashboard.standing import Unknown


def test_each_answer_comes_under_its_name() -> None:
    """Also none at all."""
    assert together({"a": lambda: 1, "b": lambda: 2}, limit_s=5) == {"a": 1, "b": 2}
    assert together({}, limit_s=5) == {}


def test_one_that_is_late_is_unknown_and_the_others_are_there() -> None:
    """Within the limit, and a loaded machine's slack."""
    let_go = threading.Event()
    begun_s = time.monotonic()

    said = together({"slow": lambda: let_go.wait(10), "quick": lambda: True}, limit_s=0.1)

    assert time.monotonic() - begun_s < 5
    assert said == {"slow": Unknown(reason="it did not answer within 0.1 s"), "quick": True}
    let_go.set()


def test_a_bug_is_raised_where_it_was_asked() -> None:
    """It must not pass for a source that is down."""

    def fail() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        together({"a": fail}, limit_s=5)
