"""The root command: an error is one line with the next step, a bug keeps its traceback."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from failsoft.cli import main as root
from failsoft.errors import ConfigError, EngineError

ROOT = Path(__file__).parent.parent.parent


def run(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> Any:
    """Run ``main`` with a command that raises *error*; return what it exits with."""

    def fail() -> None:
        raise error

    monkeypatch.setattr(root, "app", fail)
    with pytest.raises(SystemExit) as caught:
        root.main()
    return caught.value.code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError(key="port", value=0, allowed="1..65535"), 2),
        (EngineError("nobody answers; start one with `failsoft up`"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int) -> None:
    """2 is the user's to mend, 1 the work's failure."""
    assert run(monkeypatch, error) == code


def test_a_bare_install_says_what_an_engine_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that can be pasted, not a traceback."""
    error = ModuleNotFoundError("No module named 'uvicorn.config'", name="uvicorn.config")

    assert run(monkeypatch, error) == 2

    assert "pip install 'failsoft[engine]'" in capsys.readouterr().err


def test_a_module_of_ours_that_is_missing_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its traceback is what we need to see."""
    error = ModuleNotFoundError("No module named 'failsoft.nothing'", name="failsoft.nothing")

    with pytest.raises(ModuleNotFoundError):
        run(monkeypatch, error)


def test_every_package_of_the_extra_is_known() -> None:
    """Each line of ``failsoft[engine]`` gets the friendly message."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["engine"]

    modules = {line.partition(">")[0].strip().replace("-", "_") for line in extra}

    assert modules == root._ENGINE_MODULES
