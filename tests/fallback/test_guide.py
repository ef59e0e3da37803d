"""What docs/ladder.md tells a user to write works as written."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from failsoft.config.schema import check_settings
from failsoft.config.warnings import warnings_of
from tests.fallback.fault_server import FaultServer

GUIDE = Path(__file__).parents[2] / "docs" / "ladder.md"


def block(language: str) -> str:
    """Return the guide's first block in *language*."""
    found = re.search(rf"```{language}\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_guides_settings_are_valid(tmp_path: Path) -> None:
    """All of them; the one warning is about a price that nobody set."""
    file = tmp_path / "failsoft.toml"
    file.write_text(block("toml"), "utf-8")

    settings, problems = check_settings(file)

    assert problems == []
    assert settings is not None
    warnings = warnings_of(settings, {})
    assert [line.split(":")[0] for line in warnings] == ["versions.smollm2-135m-instruct.price"]


def test_the_guides_example_runs(
    server_b: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No engine runs under the pin here, so the second rung answers."""
    settings = block("toml").replace("http://127.0.0.1:9001/v1", server_b.url)
    (tmp_path / "failsoft.toml").write_text(settings, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAILSOFT_HOME", str(tmp_path))
    printed = io.StringIO()

    with contextlib.redirect_stdout(printed):
        exec(compile(block("python"), str(GUIDE), "exec"), {})

    assert printed.getvalue() == "B0 B1 B2  remote None None\nB0 B1 B2 "
