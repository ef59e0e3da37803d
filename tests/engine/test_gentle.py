"""Work at low priority leaves no trace in what is started afterwards."""

import os
import subprocess
import sys
import threading

import pytest

from failsoft.engine.gentle import NICENESS, gently

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority there")


def own_niceness() -> int:
    """Return the calling thread's."""
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def niceness_of_a_new_thread() -> int:
    """Return that of a thread started here."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(own_niceness()))
    thread.start()
    thread.join()
    return found[0]


def test_the_work_and_what_it_starts_yield_and_the_rest_does_not() -> None:
    """The engine's thread is started by the caller, so it runs at full priority."""
    before = own_niceness()

    inside = gently(lambda: (own_niceness(), niceness_of_a_new_thread()))

    low = min(before + NICENESS, 19)
    assert inside == (low, low)
    assert (own_niceness(), niceness_of_a_new_thread()) == (before, before)


def test_an_error_is_the_callers() -> None:
    """With its own type; a bug keeps its traceback."""

    def fail() -> None:
        raise ValueError("no such model")

    with pytest.raises(ValueError, match="no such model"):
        gently(fail)


def test_where_priorities_may_not_be_changed_it_works_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some sandboxes refuse the call; the caller must not wait for a thread that died of it."""

    def refuse(*_: int) -> None:
        raise PermissionError("not here")

    monkeypatch.setattr(os, "setpriority", refuse)

    assert gently(lambda: 7) == 7


def test_ctrl_c_ends_the_process_at_once() -> None:
    """Nobody waits for a model that still loads."""
    code = (
        "import os, signal, time; from failsoft.engine.gentle import gently;"
        "signal.signal(signal.SIGINT, signal.default_int_handler);"
        "gently(lambda: (os.kill(os.getpid(), signal.SIGINT), time.sleep(60)))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=20).returncode == 130
