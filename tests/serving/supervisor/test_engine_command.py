"""The supervisor over the real `failsoft engine serve`, whose engine alone is a fake."""

import json
import signal
from pathlib import Path

import httpx2

from failsoft.fallback.discovery import EngineFinder, RunningEngine
from tests.engine.http.rig import wait_until
from tests.serving.supervisor.rig import ONE_ENGINE, Up, running_up
from tests.serving.supervisor.test_supervisor import runs

COMMAND = {"v1": {"is_command": True}}


def engine_of(up: Up) -> RunningEngine:
    """Return what is published for the slot."""
    up.wait_running("front", "primary")
    engine = EngineFinder(up.home).find("primary")
    assert isinstance(engine, RunningEngine)
    return engine


def test_an_engine_is_started_with_its_settings_and_a_token(tmp_path: Path) -> None:
    """Without the token it answers nothing but health; the token is on no command line."""
    with running_up(tmp_path, settings=ONE_ENGINE, children=COMMAND) as up:
        engine = engine_of(up)
        refused = httpx2.get(f"{engine.url}/models")
        headers = {"authorization": f"Bearer {engine.token}"}
        models = httpx2.get(f"{engine.url}/models", headers=headers)
        words = Path(f"/proc/{engine.pid}/cmdline").read_text().split("\0")
        up.wait_back("primary", up.kill("primary"))
        again = engine_of(up)
        assert up.end() == 0

    asked = json.loads(next(s for s in up.said if "is_gentle" in s).partition(" | ")[2])
    assert refused.status_code == 401
    assert models.json()["data"][0]["id"] == "v1"
    assert (asked["version"], asked["is_gentle"]) == ("v1", True)
    assert asked["num_threads"] >= 1
    assert engine.token
    assert engine.token not in words
    assert again.token != engine.token


def test_it_ends_with_its_supervisor(tmp_path: Path) -> None:
    """However that one ended; what it published is gone too."""
    with running_up(tmp_path, settings=ONE_ENGINE, children=COMMAND) as up:
        engine = engine_of(up)

        up.popen.send_signal(signal.SIGKILL)
        up.popen.wait(10)

        assert wait_until(lambda: not runs(engine.pid), timeout_s=15)
        assert not (up.home / "run" / "primary.json").exists()
