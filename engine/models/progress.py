"""Byte counts on stderr while something long runs; nothing at all when nobody watches."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

Advance = Callable[[int], None]
"""Told how many more bytes are done."""


@contextmanager
def byte_progress(label: str, total_bytes: int | None) -> Iterator[Advance]:
    """Show a bar on stderr for the length of the block; quiet when stderr is no terminal.

    Args:
        label: What runs, in a few words.
        total_bytes: Where the bar ends; None when that is not known.
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


def notice(text: str) -> None:
    """Say on stderr, in one line, why the user waits; quiet when stderr is no terminal."""
    if sys.stderr.isatty():
        Console(stderr=True).print(text, highlight=False, markup=False)
