"""``failsoft front``: its options, before anything is served."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from failsoft.cli import front as command
from failsoft.cli.main import app
from failsoft.errors import ConfigError


def test_the_command_is_hidden() -> None:
    """`failsoft up` starts it; who reads the help looks for that."""
    (info,) = [c for c in app.registered_commands if c.name == "front"]

    assert info.hidden


def test_a_socket_and_a_port_are_one_too_many() -> None:
    """The socket is bound already."""
    with pytest.raises(ConfigError, match="without --host and --port"):
        command._listener(7, None, 8000)


def test_a_number_that_is_no_socket_is_a_config_error(tmp_path: Path) -> None:
    """Closed, or a file."""
    with (tmp_path / "file").open("w") as file, pytest.raises(ConfigError, match="open socket"):
        command._listener(file.fileno(), None, None)


def test_an_inherited_socket_is_taken_as_it_is() -> None:
    """Nothing is bound anew."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        taken = command._listener(sock.detach(), None, None)
        name = taken.getsockname()
        taken.close()

    assert name[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--config", "nope.toml"], "nope.toml"),
        (["--drain-s", "-1"], "drain_s"),
        (["--host", "0.0.0.0"], "[keys]"),
    ],
)
def test_a_bad_option_is_one_line_and_exit_code_2(
    tmp_path: Path, arguments: list[str], word: str
) -> None:
    """Before the port is announced."""
    (tmp_path / "failsoft.toml").write_text(
        '[endpoints.a]\nurl = "http://127.0.0.1:9/v1"\nmodel = "m"\n[ladders.chat]\nrungs = ["a"]\n'
    )
    line = [sys.executable, "-m", "failsoft", "front", "--port", "0", *arguments]
    env = {"PYTHONPATH": str(Path(__file__).parents[2]), "FAILSOFT_HOME": str(tmp_path)}

    ran = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, env=env, check=False)

    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.count("\n") == 1
    assert word in ran.stderr
