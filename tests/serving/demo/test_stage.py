"""The demo's own ``failsoft up``: laid out, waited for, and gone without a trace."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from failsoft.config.schema import load_settings
from failsoft.engine.models.store import ModelStore
from failsoft.errors import DemoError
from failsoft.serving.demo import stage as stage_module
from failsoft.serving.demo.stage import MODEL_FOLDERS, Stage

ROOT = Path(__file__).parents[3]
FAKE = (sys.executable, "-m", "tests.serving.demo.fake_up")


def environ(folder: Path, **more: str) -> dict[str, str]:
    """Return an environment whose failsoft folder is *folder*."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "FAILSOFT_HOME": str(folder), **more}


def is_gone(pid: int) -> bool:
    """Whether a process ends within 5 s."""
    until_s = time.monotonic() + 5
    while time.monotonic() < until_s:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


def test_it_runs_until_the_block_ends_and_leaves_nothing(tmp_path: Path) -> None:
    """No process and no folder; the user's own folder holds no state of it."""
    seen: list[int] = []

    with Stage(environ(tmp_path), command=FAKE) as stage:
        state = stage.wait_until_ready(
            limit_s=20, on_wait=lambda children: seen.append(len(children))
        )
        engine = stage.engine("primary")
        home = stage.home

    assert [child.name for child in state.children] == ["primary", "small"]
    assert seen[0] == 0
    assert engine is not None
    assert engine.pid is not None
    assert is_gone(state.pid)
    assert is_gone(engine.pid)
    assert not home.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == list(MODEL_FOLDERS)


def test_its_settings_are_the_built_in_ones_with_short_clocks(tmp_path: Path) -> None:
    """Valid as a whole, its store in its own folder."""
    with Stage(environ(tmp_path), command=FAKE) as stage:
        settings = load_settings(stage.home / "failsoft.toml")
        store = settings.store.url
        home = stage.home

    assert settings.ladders["chat"].rungs == ("primary", "small", "cache")
    assert settings.ladders["chat"].breaker.open_s == 1
    assert store == f"sqlite:///{home}/failsoft.db"


def test_the_users_models_are_found_and_what_is_fetched_stays_theirs(tmp_path: Path) -> None:
    """Every folder that the model store writes is linked, so a rename stays on one disk."""
    with Stage(environ(tmp_path), command=FAKE) as stage:
        store = ModelStore(stage.home)
        with store.lock("anything"), store.scratch() as scratch:
            (scratch / "built").mkdir()
            (scratch / "built").rename(stage.home / "models" / "a-digest")
        linked = {path.name for path in stage.home.iterdir() if path.is_symlink()}

    assert (tmp_path / "models" / "a-digest").is_dir()
    assert linked == set(MODEL_FOLDERS)


def test_one_that_ends_by_itself_says_its_last_words(tmp_path: Path) -> None:
    """With the exit code and the next step."""
    with (
        pytest.raises(DemoError, match="exit code 3, its last words were: error: the disk") as told,
        Stage(environ(tmp_path, FAKE_UP="ends"), command=FAKE) as stage,
    ):
        stage.wait_until_ready(limit_s=20, on_wait=lambda _: None)

    assert "loading the model" in told.value.log


def test_one_that_gives_up_is_not_waited_for(tmp_path: Path) -> None:
    """It would never be ready."""
    with (
        pytest.raises(DemoError, match="gave up"),
        Stage(environ(tmp_path, FAKE_UP="gives-up"), command=FAKE) as stage,
    ):
        stage.wait_until_ready(limit_s=20, on_wait=lambda _: None)


def test_one_that_ignores_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait is 15 s there, a tenth here."""
    monkeypatch.setattr(stage_module, "_STOP_S", 0.1)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    with Stage(environ(tmp_path), command=(sys.executable, "-c", deaf)) as stage:
        assert stage._process is not None
        pid = stage._process.pid

    assert is_gone(pid)


def test_a_second_ctrl_c_leaves_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes while the end is waited for; what still ran would lay its folder out anew."""
    stage = Stage(environ(tmp_path), command=FAKE).__enter__()
    process = stage._process
    assert process is not None
    wait = process.wait

    def interrupted(timeout: float | None = None) -> int:
        if timeout is not None:
            raise KeyboardInterrupt
        return wait()

    monkeypatch.setattr(process, "wait", interrupted)

    with pytest.raises(KeyboardInterrupt):
        stage.__exit__(None, None, None)

    assert is_gone(process.pid)
    assert not stage.home.exists()
    assert stage._lifeline is None


def test_nothing_outlives_a_stage_that_was_killed(tmp_path: Path) -> None:
    """The pipe that only its process held is cut: whoever reads it ends."""
    code = (
        "import os, signal, sys\n"
        "from failsoft.serving.demo.stage import Stage\n"
        f"stage = Stage(os.environ, command={FAKE!r}).__enter__()\n"
        "state = stage.wait_until_ready(limit_s=20, on_wait=lambda _: None)\n"
        "print(state.pid, flush=True)\n"
        "signal.pause()\n"
    )
    own = environ(tmp_path, TMPDIR=str(tmp_path))
    holder = subprocess.Popen([sys.executable, "-c", code], env=own, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    pid = int(holder.stdout.readline())

    holder.kill()
    holder.communicate()

    assert is_gone(pid)
