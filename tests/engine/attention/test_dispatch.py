"""The step that attention calls see."""

import threading
from typing import Any

import pytest

from failsoft.engine.attention.dispatch import Step, step

STEP: Any = Step((), None, None, None)  # type: ignore[arg-type]


def test_engines_of_one_process_step_at_the_same_time() -> None:
    """One variable for all threads once failed whichever forward began second."""
    entered: list[bool] = []

    def forward() -> None:
        with step(STEP):
            entered.append(True)

    with step(STEP):
        thread = threading.Thread(target=forward)
        thread.start()
        thread.join(10)

    assert entered == [True]


def test_a_step_within_a_step_is_a_bug_of_ours() -> None:
    """Its attention calls would write into the wrong pool."""
    with step(STEP), pytest.raises(AssertionError, match="under way"), step(STEP):
        pass
