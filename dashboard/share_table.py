"""Who answered how much, laid out for the page and the terminal alike.

Knows nothing of HTML or colours. A window without calls has no shares, a window that could
not be counted says so; neither is ever 0 %.
"""

from collections.abc import Iterator
from typing import NamedTuple

from failsoft.dashboard import words
from failsoft.dashboard.standing import Traffic, UnknownWindow, Window

FAILED = "no whole reply"


class Head(NamedTuple):
    """A column's head."""

    name: str
    num: str
    """How many calls the shares are of."""


class Cell(NamedTuple):
    """One share."""

    text: str
    bar: float | None
    """How long a bar beside it would be, 0..1; None for none."""
    is_bad: bool = False


class Row(NamedTuple):
    """One rung's shares, a cell for each column."""

    name: str
    cells: tuple[Cell, ...]


class ShareTable(NamedTuple):
    """The whole table."""

    heads: tuple[Head, ...]
    rows: tuple[Row, ...]


def share_table(traffic: Traffic) -> ShareTable:
    """Return the table: rungs in order, then the calls that got no whole reply."""
    return ShareTable(
        heads=tuple(map(_head, traffic.windows)),
        rows=(
            *(
                Row(rung, tuple(_cell(window, rung) for window in traffic.windows))
                for rung in _rungs(traffic)
            ),
            Row(FAILED, tuple(map(_failed, traffic.windows))),
        ),
    )


def _rungs(traffic: Traffic) -> Iterator[str]:
    known = (window for window in traffic.windows if isinstance(window, Window))
    yield from dict.fromkeys(rung for window in known for rung in window.replies)


def _head(window: Window | UnknownWindow) -> Head:
    name = words.window(window.window_s)
    if isinstance(window, UnknownWindow):
        return Head(name, words.UNKNOWN)
    return Head(name, f"n={window.num_calls:,}")


def _cell(window: Window | UnknownWindow, rung: str) -> Cell:
    if isinstance(window, UnknownWindow):
        return Cell(words.UNKNOWN, None)
    share = window.share(rung)
    return Cell(words.percent(share), share)


def _failed(window: Window | UnknownWindow) -> Cell:
    if isinstance(window, UnknownWindow):
        return Cell(words.UNKNOWN, None)
    share = words.percent(window.failed_share)
    if not window.num_failed:
        return Cell(share, None)
    return Cell(f"{share} ({window.num_failed:,})", None, is_bad=True)
