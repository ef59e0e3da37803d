"""Options that the bench commands share, and the files that they write."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from failsoft.errors import ConfigError

JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Write the figures to this file too.")
]
TtftMs = Annotated[
    float | None, typer.Option(min=0, help="Goodput counts replies whose first token came by then.")
]
TpotMs = Annotated[
    float | None, typer.Option(min=0, help="Goodput counts replies with at most this per token.")
]


def check_writable(option: str, path: Path | None) -> None:
    """Refuse a file that cannot be written, before minutes are spent on what goes into it.

    Raises:
        ConfigError: Its folder does not exist, or it is a folder.
    """
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise ConfigError(key=option, value=str(path), allowed="a file in a folder that exists")


def write(path: Path | None, text: str) -> None:
    """Write *text* to the file that was asked for, if one was."""
    if path is not None:
        path.write_text(text, "utf-8")
        typer.echo(f"wrote {path}", err=True)


def in_seconds(milliseconds: float | None) -> float | None:
    """Return an option's milliseconds as seconds."""
    return None if milliseconds is None else milliseconds / 1000


def write_json(path: Path | None, document: dict[str, Any]) -> None:
    """Write *document* to the file that was asked for, if one was."""
    write(path, json.dumps(document, indent=2) + "\n")
