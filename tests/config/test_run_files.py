"""Files by which processes find each other: whose they are."""

import os
import subprocess
import sys

import pytest

from failsoft.config.run_files import is_running, process_start


def test_a_number_that_was_given_again_is_another_process() -> None:
    """As after a reboot, or in a new container, where the very same numbers come again."""
    started = process_start(os.getpid())

    assert is_running(os.getpid(), started)
    if started is not None:
        assert not is_running(os.getpid(), started - 1)


def test_where_nobody_tells_any_process_of_that_number_will_do() -> None:
    """A file of an earlier failsoft says no start."""
    assert is_running(os.getpid(), None)


def test_a_process_that_is_gone_runs_no_more() -> None:
    """Whatever its start."""
    with subprocess.Popen([sys.executable, "-c", ""]) as popen:
        popen.wait()

    assert not is_running(popen.pid, None)
    assert process_start(popen.pid) is None


@pytest.mark.skipif(sys.platform != "linux", reason="nobody tells there")
def test_each_process_has_a_start_of_its_own() -> None:
    """In ticks since the boot, so a later one's is never less."""
    own = process_start(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as popen:
        others = process_start(popen.pid)
        popen.communicate(b"\n")

    assert own is not None
    assert others is not None
    assert own < others
