"""``failsoft config``: check the settings file, or show what it amounts to."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from failsoft.cli.pin_glance import moved_away
from failsoft.config.schema import DEFAULT_FILE, check_settings, load_settings
from failsoft.config.show import as_tables, as_toml
from failsoft.config.warnings import warnings_of
from failsoft.errors import ConfigError

config_app = typer.Typer(no_args_is_help=True, help="Check and show the settings file.")

_File = Annotated[Path, typer.Argument(metavar="FILE", help="The settings file.")]


@config_app.command("check")
def check(file: _File = DEFAULT_FILE) -> None:
    """List every problem in FILE, and what may surprise; exit 2 when there is a problem."""
    out = Console(soft_wrap=True, highlight=False)
    _see_that_it_is_there(file)
    settings, problems = check_settings(file)
    for problem in problems:
        out.print(f"[bold red]error:[/] {escape(str(problem))}")
    if settings is None:
        raise typer.Exit(2)
    for line in [*moved_away(settings, file, os.environ), *warnings_of(settings, os.environ)]:
        out.print(f"[yellow]warning:[/] {escape(line)}")
    out.print(f"{escape(str(file))} is valid: {len(settings.ladders)} ladder(s)")


def _see_that_it_is_there(file: Path) -> None:
    """Tell whoever has brought no file that there is none to look at; exit 2.

    Raises:
        ConfigError: There is none.
    """
    if file == DEFAULT_FILE and not file.exists():
        raise ConfigError(
            key="FILE",
            value=str(file),
            allowed="no such file here",
            message=f"no {file} in this folder: `failsoft up` takes built-in settings without one; "
            "name a file, or go to its folder",
        )


@config_app.command("show")
def show(
    file: _File = DEFAULT_FILE,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Print what FILE says, defaults filled in, and on stderr where moved pins differ from it."""
    _see_that_it_is_there(file)
    settings = load_settings(file)
    err = Console(stderr=True, soft_wrap=True, highlight=False)
    for line in moved_away(settings, file, os.environ):
        err.print(f"[yellow]warning:[/] {escape(line)}")
    tables = as_tables(settings)
    if as_json:
        typer.echo(json.dumps(tables, indent=2, default=str))
    else:
        typer.echo(as_toml(tables), nl=False)
