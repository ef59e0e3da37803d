"""Byte counts on stderr while something long runs; nothing at all when nobody watches."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

Advance = Callable[[int], None]
"""Told how many more bytes are done."""

Report = Callable[[int, int | None], None]
"""Told how many bytes are done in all, and of how many; None when that is not known."""


@contextmanager
def byte_progress(label: str, total_bytes: int) -> Iterator[Advance]:
    """Show a bar on stderr for the length of the block; quiet when stderr is no terminal.

    Args:
        label: What runs, in a few words.
        total_bytes: Where the bar ends.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(
        *columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as progress:
        task = progress.add_task(label, total=total_bytes)
        yield lambda num_bytes: progress.advance(task, num_bytes)


@contextmanager
def spinner(label: str) -> Iterator[Report]:
    """Show on stderr that something runs and for how long; quiet when it is no terminal.

    For work whose bytes cannot be counted, or whose end is not known at its start.
    """
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    columns = (TextColumn("{task.description}{task.fields[amount]}"), TimeElapsedColumn())
    with Progress(
        SpinnerColumn(), *columns, console=Console(stderr=True), transient=True
    ) as progress:
        task = progress.add_task(label, total=None, amount="")

        def report(done: int, total: int | None) -> None:
            of = "" if total is None else f" of {decimal(total)}"
            progress.update(task, amount=f": {decimal(done)}{of}")

        yield report


def notice(text: str) -> None:
    """Say on stderr, in one line, why the user waits; quiet when stderr is no terminal."""
    if sys.stderr.isatty():
        Console(stderr=True).print(text, highlight=False, markup=False)
