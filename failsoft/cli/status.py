"""``failsoft status``: is it answering, from which rung, and what broke.

Exit 0 while callers are answered (degraded too), 1 when they are not or nobody can say.
"""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from failsoft.dashboard.standing import Standing


def status(
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The settings file.",
            show_default="what `failsoft up` runs with, else failsoft.toml, else built in",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Show whether it answers, from which rung and since when; exit 1 if it does not."""
    from failsoft.dashboard.document import to_document
    from failsoft.dashboard.standing import Answers

    standing = _look(config)
    if as_json:
        typer.echo(json.dumps(to_document(standing), indent=2))
    else:
        _print(standing)
    if standing.verdict.answers not in (Answers.YES, Answers.DEGRADED):
        raise typer.Exit(1)


def _look(config: Path | None) -> "Standing":
    """Return the picture.

    Raises:
        ConfigError: The file that was named cannot be read. One that was not named may be
            broken: what runs goes on with the settings it has, and must be shown.
    """
    from failsoft.config.home import home_folder
    from failsoft.config.schema import check_settings, load_settings
    from failsoft.dashboard.observer import Observer
    from failsoft.dashboard.standing import Unknown

    home = home_folder(os.environ)
    if config is not None:
        path = config
        observer = Observer(home, settings=load_settings(path), settings_path=path)
    else:
        path = _settings_in_use(home)
        settings, problems = check_settings(path)
        unknown = Unknown(reason=str(problems[0]) if problems else "")
        observer = Observer(home, settings=settings or unknown, settings_path=path)
    try:
        return observer.look()
    finally:
        observer.close()


def _settings_in_use(home: Path) -> Path:
    """Return the settings of what runs here, else those that would be used."""
    from failsoft.config.schema import settings_file
    from failsoft.run_state import accepted_settings, read_supervisor

    running = read_supervisor(home)
    if running is None:
        return settings_file(None)
    accepted = accepted_settings(home)
    return accepted if accepted.exists() else Path(running.settings)


def _print(standing: "Standing") -> None:
    from failsoft.cli.status_tables import is_nothing, show
    from failsoft.config.home import home_folder

    if is_nothing(standing):
        home = home_folder(os.environ)
        typer.echo(f"{standing.verdict.reason} (looked in {home}; FAILSOFT_HOME names another)")
        return
    show(standing, is_terminal=sys.stdout.isatty())
