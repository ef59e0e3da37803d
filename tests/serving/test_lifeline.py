"""A process ends when whoever holds its lifeline is gone; real processes and signals."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from failsoft.errors import ConfigError
from failsoft.serving.lifeline import VARIABLE, watch

PROGRAM = """
import os, signal, subprocess, sys, time
from failsoft.serving.lifeline import watch
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "parent" in sys.argv:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    print(child.pid, flush=True)
watch(os.environ, grace_s=0.2)
print("ready", "FAILSOFT_LIFELINE_FD" in os.environ, flush=True)
time.sleep(60)
"""


def start(*words: str) -> tuple["subprocess.Popen[str]", int]:
    """Start the program; return it and the end of its lifeline that a supervisor would hold."""
    reading, writing = os.pipe()
    popen = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        env={**os.environ, VARIABLE: str(reading), "PYTHONPATH": str(Path(__file__).parents[2])},
        pass_fds=[reading],
        process_group=0,
        stdout=subprocess.PIPE,
        text=True,
    )
    os.close(reading)
    return popen, writing


def read_line(popen: "subprocess.Popen[str]") -> str:
    """Return the next line it prints."""
    assert popen.stdout is not None
    return popen.stdout.readline().strip()


def test_it_gets_sigterm_when_its_supervisor_is_gone() -> None:
    """Not before; and the variable is not handed on to what it starts."""
    popen, lifeline = start()
    with popen:
        assert read_line(popen) == "ready False"
        assert popen.poll() is None

        os.close(lifeline)

        assert popen.wait(5) == -signal.SIGTERM


def test_one_that_does_not_stop_is_killed() -> None:
    """After its grace."""
    popen, lifeline = start("deaf")
    with popen:
        read_line(popen)
        started_s = time.monotonic()

        os.close(lifeline)

        assert popen.wait(5) == -signal.SIGKILL
        assert time.monotonic() - started_s >= 0.2


def test_what_it_had_started_ends_with_it() -> None:
    """Such as a download, which would go on for nobody."""
    popen, lifeline = start("parent")
    with popen:
        grandchild = int(read_line(popen))
        read_line(popen)

        os.close(lifeline)
        popen.wait(5)

    status = Path(f"/proc/{grandchild}/stat")
    end = time.monotonic() + 5
    while status.exists() and status.read_text().split()[2] != "Z":
        assert time.monotonic() < end
        time.sleep(0.01)


def test_without_a_lifeline_nothing_is_watched() -> None:
    """As when it is started by hand."""
    watch({})


@pytest.mark.parametrize("value", ["", "x", "99999"])
def test_a_variable_that_names_no_file_is_refused(value: str) -> None:
    """Else a stray setting would end the process at once."""
    with pytest.raises(ConfigError, match=VARIABLE):
        watch({VARIABLE: value})
