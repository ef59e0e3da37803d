"""``failsoft config`` as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path

GOOD = """
[endpoints.remote]
url = "http://127.0.0.1:9001/v1"
model = "m-1"
api_key_env = "FAILSOFT_TEST_KEY"
price = { input_per_mtok = 1, output_per_mtok = 2 }
[ladders.chat]
rungs = ["remote"]
"""


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run ``failsoft config ARGS`` in *folder*."""
    command = [sys.executable, "-m", "failsoft", "config", *args]
    environ = {"PYTHONPATH": str(Path(__file__).parents[2]), "FAILSOFT_TEST_KEY": "sk-secret"}
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=60, check=False
    )


def test_check_accepts_a_valid_file_in_the_current_folder(tmp_path: Path) -> None:
    """``failsoft.toml`` is the default name; exit 0."""
    (tmp_path / "failsoft.toml").write_text(GOOD)

    done = run(tmp_path, "check")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "failsoft.toml is valid: 1 ladder(s)\n"


def test_check_lists_all_problems_and_exits_2(tmp_path: Path) -> None:
    """2 is the code for a wrong setting."""
    (tmp_path / "other.toml").write_text(GOOD + "deadline_s = -1\n[store]\nurl = 'x'\n")

    done = run(tmp_path, "check", "other.toml")

    assert done.returncode == 2
    lines = done.stdout.splitlines()
    assert [line.split(" = ")[0] for line in lines] == [
        "error: store.url",
        "error: ladders.chat.deadline_s",
    ]


def test_show_fills_in_defaults_and_reads_no_secret(tmp_path: Path) -> None:
    """One JSON document that names the variable and not what it holds."""
    (tmp_path / "failsoft.toml").write_text(GOOD)

    done = run(tmp_path, "show", "--json")

    tables = json.loads(done.stdout)
    assert tables["ladders"]["chat"]["retry"]["attempts"] == 3
    assert tables["endpoints"]["remote"]["api_key_env"] == "FAILSOFT_TEST_KEY"
    assert "sk-secret" not in done.stdout


def test_show_of_a_bad_file_prints_one_line_and_exits_2(tmp_path: Path) -> None:
    """No traceback for a user's mistake."""
    done = run(tmp_path, "show", "missing.toml")

    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
