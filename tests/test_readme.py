"""The README is true: its transcript runs, and every command is in it with help."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from failsoft.cli.main import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def transcript() -> list[tuple[str, str]]:
    """Return (command, output) of the block whose lines begin with ``$``."""
    block = re.findall(r"^```\n(\$ .*?)^```", README, re.DOTALL | re.MULTILINE)[0]
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def commands() -> Iterator[tuple[str, Any]]:
    """Yield each command that does something, by its full name."""

    def walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        if hasattr(command, "commands"):
            for child_name, child in command.commands.items():
                yield from walk(f"{name} {child_name}", child)
        else:
            yield name, command

    return walk("failsoft", typer.main.get_command(app))


@pytest.mark.parametrize(("line", "output"), transcript(), ids=lambda text: text[:40])
def test_the_transcript_is_what_the_commands_print(line: str, output: str, tmp_path: Path) -> None:
    """Run in an empty folder; what goes to stderr is shown too."""
    program, *arguments = shlex.split(line)
    assert program == "failsoft"

    ran = subprocess.run(
        [sys.executable, "-m", "failsoft", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "FAILSOFT_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    assert ran.stdout == output


@pytest.mark.parametrize(("name", "command"), list(commands()), ids=lambda value: str(value))
def test_every_command_has_help_and_is_in_the_readme(name: str, command: Any) -> None:
    """A command nobody can find does not exist, but for those that our processes start."""
    assert command.hidden or f"`{name}`" in README
    assert command.help
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{name}: {parameter.name} has no help"


def test_links_to_files_lead_somewhere() -> None:
    """Every relative link names a file or folder of the repository."""
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
