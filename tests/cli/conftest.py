"""A home whose pins a test moves, and failsoft's commands run in it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from failsoft.cli import main as root
from tests.cli.pin_home import Done, PinHome, Run


@pytest.fixture
def home(tmp_path: Path) -> Iterator[PinHome]:
    """A home whose slot primary runs v1 by the settings file."""
    home = PinHome(tmp_path)
    yield home
    home.store.close()


@pytest.fixture
def run(home: PinHome, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command in the home's folder."""
    monkeypatch.setenv("FAILSOFT_HOME", str(home.folder))
    monkeypatch.chdir(home.folder)

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["failsoft", *arguments])
        code: object = 0
        try:
            root.main()
        except SystemExit as exc:
            code = exc.code or 0
        return Done(code, *capfd.readouterr())

    return run
