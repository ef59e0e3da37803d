"""``failsoft engine serve`` as a process, over the fake engine."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from failsoft.cli.serving import read_api_key
from failsoft.engine.http.server import bind
from failsoft.errors import ConfigError
from failsoft.fallback.discovery import (
    EngineFinder,
    RunningEngine,
    find_candidate,
    promote_candidate,
)
from tests.engine.http.rig import DIGEST


@contextlib.contextmanager
def command(*args: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    """Run ``failsoft ARGS``; kill it if a test leaves it behind."""
    line = [sys.executable, "-m", "tests.cli.fake_command", *args]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        line, text=True, stdout=pipe, stderr=pipe, env={**os.environ, **env}
    ) as popen:
        try:
            yield popen
        finally:
            popen.kill()


def wait_ready(popen: subprocess.Popen[str]) -> tuple[dict[str, Any], str]:
    """Return what was asked for, and the URL of the ready line."""
    asked: dict[str, Any] = {}
    assert popen.stderr is not None
    for line in popen.stderr:
        if line.startswith("{"):
            asked = json.loads(line)
        if " ready on " in line:
            return asked, line.rsplit(" ", 1)[1].strip()
    raise AssertionError("the process ended before it was ready")


def test_serve_says_ready_once_it_answers_and_exits_0_on_sigterm() -> None:
    """On stderr; stdout holds the URL alone. Options reach the engine and the server."""
    args = ["--version", "tiny", "--port", "0", "--max-running", "3", "--max-waiting", "9"]
    args += ["--kv-blocks", "77", "--max-step-tokens", "33", "--no-prefix-cache"]
    args += ["--dtype", "float32", "--api-key-env", "THE_KEY", "--allowed-host", "a.example"]
    args += ["--threads", "3", "--gentle-load"]
    with command("engine", "serve", *args, THE_KEY="s3cret") as popen:
        asked, url = wait_ready(popen)
        refused = httpx2.get(f"{url}/models")
        models = httpx2.get(
            f"{url}/models", headers={"authorization": "Bearer s3cret", "host": "a.example"}
        )
        popen.send_signal(signal.SIGTERM)

        assert popen.wait(10) == 0
        assert popen.stdout is not None
        assert popen.stdout.read() == f"{url}\n"

    assert refused.status_code == 401
    assert models.json()["data"][0]["id"] == asked["version"] == "tiny"
    assert asked["dtype"] == "float32"
    assert (asked["max_running"], asked["max_waiting"]) == (3, 9)
    assert (asked["num_kv_blocks"], asked["max_step_tokens"]) == (77, 33)
    assert asked["prefix_cache"] is False
    assert (asked["num_threads"], asked["is_gentle"]) == (3, True)


def test_a_taken_port_is_one_line_and_exit_code_2() -> None:
    """Before anything is loaded, without a traceback."""
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = str(taken.getsockname()[1])
        with command("engine", "serve", "--port", port) as popen:
            _, err = popen.communicate(timeout=20)

    assert popen.returncode == 2
    assert err.count("\n") == 1
    assert port in err
    assert "--port" in err


@pytest.mark.parametrize(
    ("args", "name"),
    [
        (["--host", "0.0.0.0"], "host"),
        (["--api-key-env", "NO_SUCH_VARIABLE"], "--api-key-env"),
        (["--max-running", "0"], "max_running"),
        (["--dtype", "int4"], "dtype"),
        (["--threads", "0"], "num_threads"),
        (["--port", "99999"], "port"),
        (["--slot", "../primary"], "--slot"),
        (["--candidate"], "--candidate"),
    ],
)
def test_bad_settings_are_exit_code_2(
    args: list[str], name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that names the setting and what is allowed."""
    from failsoft.cli.main import main

    monkeypatch.setattr(sys, "argv", ["failsoft", "engine", "serve", *args])
    num_threads = os.environ.get("OMP_NUM_THREADS")

    with pytest.raises(SystemExit) as caught:
        main()

    err = capsys.readouterr().err
    assert caught.value.code == 2
    assert err.startswith(f"error: {name} = ")
    assert err.count("\n") == 1
    assert os.environ.get("OMP_NUM_THREADS") == num_threads  # OpenMP would add a line of its own


def test_an_empty_key_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server must not come up open because a secret was not mounted."""
    monkeypatch.setenv("THE_KEY", "")

    with pytest.raises(ConfigError):
        read_api_key("THE_KEY")


def test_the_server_loads_no_torch() -> None:
    """Nor transformers: both come with the model only."""
    code = (
        "import sys, failsoft.cli.main, failsoft.engine.http.server, failsoft.engine.text.codec;"
        "sys.exit(bool({'torch', 'transformers', 'tokenizers'} & sys.modules.keys()))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_engine_publishes_itself_under_its_slot_while_it_runs(tmp_path: Path) -> None:
    """A ladder's ``pin`` finds URL, key and digest there; a stopped engine is there no more."""
    env = {"FAILSOFT_HOME": str(tmp_path), "THE_KEY": "s3cret"}
    args = ["--port", "0", "--slot", "primary", "--api-key-env", "THE_KEY"]
    with command("engine", "serve", "--version", "tiny", *args, **env) as popen:
        _, url = wait_ready(popen)
        found = EngineFinder(tmp_path).find("primary")
        popen.send_signal(signal.SIGTERM)

        assert popen.wait(10) == 0

    assert isinstance(found, RunningEngine)
    assert (found.url, found.pid, found.version) == (url, popen.pid, "tiny")
    assert (found.token, found.version_digest, found.max_model_len) == ("s3cret", DIGEST, 512)
    assert isinstance(EngineFinder(tmp_path).find("primary"), str)


@pytest.mark.parametrize("is_promoted", [False, True])
def test_a_candidate_is_out_of_the_way_until_it_is_promoted(
    tmp_path: Path, is_promoted: bool
) -> None:
    """It answers at its own URL; when it stops it withdraws whichever file is its own."""
    env = {"FAILSOFT_HOME": str(tmp_path)}
    args = ["--version", "tiny", "--port", "0", "--slot", "primary", "--candidate"]
    with command("engine", "serve", *args, **env) as popen:
        _, url = wait_ready(popen)
        found = find_candidate(tmp_path, "primary")
        before = EngineFinder(tmp_path).find("primary")
        if is_promoted:
            promote_candidate(tmp_path, "primary", popen.pid)
            assert EngineFinder(tmp_path).find("primary") == found
        popen.send_signal(signal.SIGTERM)

        assert popen.wait(10) == 0

    assert isinstance(found, RunningEngine)
    assert (found.url, found.pid, found.version_digest) == (url, popen.pid, DIGEST)
    assert isinstance(before, str)
    assert isinstance(find_candidate(tmp_path, "primary"), str)
    assert isinstance(EngineFinder(tmp_path).find("primary"), str)
