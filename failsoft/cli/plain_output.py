"""Results on stdout that can be read, cut and parsed: columns, and JSON documents."""

import json
from collections.abc import Sequence
from typing import Any

import typer


def print_json(document: Any) -> None:
    """Print one JSON document."""
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))


def print_columns(rows: Sequence[tuple[str, ...]]) -> None:
    """Print *rows*, each as long as the others, in columns that line up.

    One line for each row, however narrow the terminal: what wraps can be neither read nor cut.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo(" ".join(cells).rstrip())
