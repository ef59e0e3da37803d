"""One supervisor for each folder, and what a killed one leaves behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from failsoft.errors import AlreadyRunningError, ConfigError
from failsoft.fallback.discovery import RunningEngine, engine_file, publish_engine
from failsoft.run_state import (
    ChildState,
    FrontState,
    SupervisorState,
    write_front,
    write_supervisor,
)
from failsoft.serving.lifeline import VARIABLE
from failsoft.serving.supervisor.instance import clean_up, sole_supervisor


def dead_pid() -> int:
    """Return the number of a process that is gone."""
    with subprocess.Popen([sys.executable, "-c", ""]) as popen:
        popen.wait()
    return popen.pid


def state_of(pid: int, *children: int) -> SupervisorState:
    """Return what a supervisor tells of itself and its children."""
    return SupervisorState(
        pid=pid,
        started_at_ms=0,
        settings="failsoft.toml",
        api_url="http://127.0.0.1:8000/v1",
        ops_url="http://127.0.0.1:8001",
        children=tuple(
            ChildState(name=str(child), kind="engine", phase="running", pid=child, since_ms=0)
            for child in children
        ),
    )


def test_a_second_one_is_refused_with_pid_and_url(tmp_path: Path) -> None:
    """In one line; when the first is gone the lock is free."""
    with sole_supervisor(tmp_path):
        write_supervisor(tmp_path, state_of(os.getpid()))
        with pytest.raises(AlreadyRunningError) as caught, sole_supervisor(tmp_path):
            pass

    message = str(caught.value)
    assert (caught.value.pid, caught.value.url) == (os.getpid(), "http://127.0.0.1:8000/v1")
    assert str(os.getpid()) in message
    assert "http://127.0.0.1:8000/v1" in message
    assert "\n" not in message
    with sole_supervisor(tmp_path):
        pass


def test_a_home_that_cannot_be_written_to_is_one_line(tmp_path: Path) -> None:
    """A file lies where the folder should be; a disk that is read-only says the same."""
    (tmp_path / "home").write_text("")

    with (
        pytest.raises(ConfigError, match=r"FAILSOFT_HOME.*may write to"),
        sole_supervisor(tmp_path / "home"),
    ):
        pass


def test_its_lock_is_private(tmp_path: Path) -> None:
    """As all files of running processes are."""
    with sole_supervisor(tmp_path):
        mode = (tmp_path / "run/processes/supervisor.lock").stat().st_mode

    assert mode & 0o777 == 0o600


def test_one_that_only_begins_is_named_without_its_url(tmp_path: Path) -> None:
    """The file of an earlier one says nothing of it."""
    write_supervisor(tmp_path, state_of(os.getppid()))

    with (
        sole_supervisor(tmp_path),
        pytest.raises(AlreadyRunningError) as caught,
        sole_supervisor(tmp_path),
    ):
        pass

    assert (caught.value.pid, caught.value.url) == (os.getpid(), None)


def test_files_of_the_dead_are_removed_and_those_of_the_living_stay(tmp_path: Path) -> None:
    """Half-written ones too; an engine that somebody started by hand goes on."""
    gone = dead_pid()
    for slot, pid in (("dead", gone), ("alive", os.getpid())):
        url = "http://127.0.0.1:1/v1"
        for is_candidate in (False, True):
            engine = RunningEngine(slot=slot, url=url, pid=pid, version="v")
            publish_engine(tmp_path, engine, is_candidate=is_candidate)
    write_front(tmp_path, FrontState(pid=gone, url="http://127.0.0.1:1/v1", token="t"))
    write_supervisor(tmp_path, state_of(gone))
    run = tmp_path / "run"
    (run / f"primary.{gone}.tmp").write_text("{")
    (run / f"small.{os.getpid()}.tmp").write_text("{")
    (run / "odd.json").write_text("[]")
    publish_engine(tmp_path, RunningEngine(slot="reused", url=url, pid=os.getpid(), version="v"))
    reused = json.loads((run / "reused.json").read_text())
    if reused["process_start"] is None:  # not told here, so it cannot be told apart
        (run / "reused.json").unlink()
    else:
        reused["process_start"] -= 1
        (run / "reused.json").write_text(json.dumps(reused))

    clean_up(tmp_path, on_wait=lambda: None)

    left = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
    kept = ["alive.json", "candidates/alive.json", "odd.json", f"small.{os.getpid()}.tmp"]
    assert left == kept
    assert not engine_file(tmp_path, "dead").exists()


def test_children_of_a_killed_one_are_waited_for(tmp_path: Path) -> None:
    """They may hold its ports for some seconds; strangers under old numbers are not theirs."""
    environ = {**os.environ, VARIABLE: "3"}
    code = "import sys; print('up', flush=True); sys.stdin.read()"
    waits: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        write_supervisor(tmp_path, state_of(dead_pid(), child.pid, os.getpid()))

        def sleep(_: float) -> None:
            waits.append("sleep")
            child.kill()
            child.wait()

        clean_up(tmp_path, on_wait=lambda: waits.append("told"), sleep=sleep)

    assert waits == ["told", "sleep"]


def test_waiting_has_an_end(tmp_path: Path) -> None:
    """Then the ports say whether it matters."""
    environ = {**os.environ, VARIABLE: "3"}
    now = [0.0]
    code = "import sys; print('up', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        write_supervisor(tmp_path, state_of(dead_pid(), child.pid))

        clean_up(
            tmp_path,
            on_wait=lambda: None,
            limit_s=12.0,
            clock=lambda: now[0],
            sleep=lambda _: now.__setitem__(0, now[0] + 1.0),
        )
        child.kill()

    assert now == [12.0]
