"""``failsoft up`` as a user meets it; its children are fake programs."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from failsoft.cli.up import curl_line
from failsoft.engine.http.listen import bind
from tests.serving.supervisor.rig import ONE_ENGINE, SETTINGS, running_up

ROOT = Path(__file__).parents[2]


def run_up(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the real command, which must end by itself."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "FAILSOFT_HOME": str(folder / "home")}
    line = [sys.executable, "-m", "failsoft", "up", *args]
    return subprocess.run(
        line, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False
    )


def test_stdout_gets_two_urls_and_a_line_to_try(tmp_path: Path) -> None:
    """Once an engine is ready, and not before; a key's variable is named, never its value."""
    settings = ONE_ENGINE + '[keys]\nteam = "PATH"\n'
    with running_up(tmp_path, settings=settings, children={"primary": {"start_s": 0.3}}) as up:
        assert up.popen.stdout is not None
        api, ops, curl = (up.popen.stdout.readline().strip() for _ in range(3))
        child = up.child("primary")
        state = up.state
        up.end()
        rest = up.popen.stdout.read()

    assert child is not None
    assert child.phase == "running"
    assert (api, ops) == (state.api_url, state.ops_url)
    assert api.endswith("/v1")
    assert curl == curl_line(api, "chat", "PATH")
    assert rest == ""


def test_without_local_engines_it_is_ready_with_its_front(tmp_path: Path) -> None:
    """A ladder of foreign endpoints alone."""
    settings = (
        '[endpoints.far]\nurl = "http://127.0.0.1:9/v1"\nmodel = "m-1"\n'
        '[ladders.chat]\nrungs = ["far"]\n'
    )
    with running_up(tmp_path, settings=settings) as up:
        assert up.popen.stdout is not None
        assert up.popen.stdout.readline().strip() == up.state.api_url
        assert [child.name for child in up.state.children] == ["front", "ops"]
        up.end()


def test_with_every_engine_given_up_it_says_where_it_listens(tmp_path: Path) -> None:
    """What is kept still answers; nobody waits for a line that never comes."""
    children = {"primary": {"exits": 2, "says": ["error: no such version"]}}
    with running_up(tmp_path, settings=ONE_ENGINE, children=children) as up:
        assert up.popen.stdout is not None
        assert up.popen.stdout.readline().strip() == up.state.api_url
        up.wait_said("engine primary: gave up: exit 2; its last line: error: no such version")
        up.end()


def test_a_second_one_is_refused_in_one_line(tmp_path: Path) -> None:
    """It names the first one's process and URL, and leaves it alone."""
    with running_up(tmp_path, settings=ONE_ENGINE) as up:
        up.wait_running("front", "primary")

        ran = run_up(tmp_path, "--port", "0")

        assert ran.returncode == 1
        assert ran.stderr.count("\n") == 1
        assert f"pid {up.popen.pid}, {up.state.api_url}" in ran.stderr
        assert up.asks_front() == up.pid("front")
        up.end()


def test_every_mistake_of_the_settings_is_told(tmp_path: Path) -> None:
    """Exit code 2, nothing started."""
    bad = SETTINGS.replace('primary = "v1"', 'primary = "v9"') + "deadline_s = -1\n"
    (tmp_path / "other.toml").write_text(bad)

    ran = run_up(tmp_path, "--config", "other.toml")

    assert (ran.returncode, ran.stdout) == (2, "")
    assert [line.split(" = ")[0] for line in ran.stderr.splitlines()] == [
        "error: pins.primary",
        "error: ladders.chat.deadline_s",
    ]
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("args", "name"),
    [
        (["--host", "0.0.0.0"], "host"),
        (["--port", "65535"], "port"),
        (["--config", "missing.toml"], "missing.toml"),
    ],
)
def test_bad_settings_are_exit_code_2(args: list[str], name: str, tmp_path: Path) -> None:
    """One line that names the setting and what is allowed."""
    (tmp_path / "failsoft.toml").write_text(SETTINGS)

    ran = run_up(tmp_path, *args)

    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert ran.stderr.startswith(f"error: {name}")


def test_both_ports_must_be_free(tmp_path: Path) -> None:
    """The dashboard takes the one after the API's."""
    (tmp_path / "failsoft.toml").write_text(SETTINGS)
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]

        ran = run_up(tmp_path, "--port", str(port - 1))

    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert "dashboard" in ran.stderr or str(port - 1) in ran.stderr


def test_a_closed_terminal_ends_it(tmp_path: Path) -> None:
    """Its SIGHUP is no request to read the settings again; nothing goes on unseen."""
    master, slave = os.openpty()
    (tmp_path / "failsoft.toml").write_text(SETTINGS)
    with running_up(tmp_path, settings=ONE_ENGINE, terminal=slave) as up:
        os.close(slave)
        up.wait_running("front", "ops", "primary")

        os.close(master)

        assert up.popen.wait(15) == 0
        assert up.log().count("front gone") == 1


def test_a_terminal_that_is_closed_is_no_second_signal(tmp_path: Path) -> None:
    """The shell sends SIGHUP, and the kernel again when the shell is gone: answers may finish."""
    master, slave = os.openpty()
    children = {"front": {"drain_s": 1.0}}  # longer than a hurry lets it be
    with running_up(tmp_path, settings=ONE_ENGINE, children=children, terminal=slave) as up:
        os.close(slave)
        up.wait_running("front", "ops", "primary")
        os.close(master)
        up.wait_for(lambda: "front term" in up.log())

        up.popen.send_signal(signal.SIGHUP)

        assert up.popen.wait(15) == 0
        assert up.log().count("front term") == 1
        assert up.log().count("front gone") == 1


def test_sighup_from_elsewhere_is_a_reload_in_a_terminal_too(tmp_path: Path) -> None:
    """Colours and the last line are for people; it goes on."""
    master, slave = os.openpty()
    with running_up(tmp_path, settings=ONE_ENGINE, terminal=slave) as up:
        os.close(slave)
        up.wait_running("front", "ops", "primary")

        up.reload(ONE_ENGINE)

        assert up.state.last_reload is not None
        assert up.end(signal.SIGTERM) == 0
    os.close(master)
