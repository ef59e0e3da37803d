"""How the demo is shown: a live board in a terminal, a line a second anywhere else.

Knows nothing of processes or HTTP.
"""

import contextlib
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from failsoft.run_state import ChildState
from failsoft.serving.demo.play import Moment
from failsoft.serving.demo.score import RECENT_S

if TYPE_CHECKING:
    from rich.status import Status

_NUM_NEWS = 8
_BAR_COLUMNS = 30
_CUT = "cut (the answer had begun when its engine died)"
_COLOURS = ("green", "yellow", "magenta", "cyan")
"""Of the rungs in their order."""


class Board(Protocol):
    """Shows the demo."""

    def waiting(self, children: tuple[ChildState, ...]) -> None:
        """Show what still starts."""

    def playing(self, ops_url: str) -> AbstractContextManager[None]:
        """Begin to show moments, until the block ends."""

    def show(self, moment: Moment) -> None:
        """Show a moment."""

    def summary(self, moment: Moment) -> None:
        """Show how it all went."""


def make_board(*, is_terminal: bool, seconds: float) -> Board:
    """Return what suits stdout."""
    return LiveBoard(seconds=seconds) if is_terminal else LineBoard()


class LineBoard:
    """One line a second on stdout; what happens in between gets lines of its own."""

    def __init__(self) -> None:
        self._told = ""
        self._next_s = 0.0

    def waiting(self, children: tuple[ChildState, ...]) -> None:
        """Say on stderr what changed."""
        if (words := _starting(children)) != self._told:
            typer.echo(words, err=True)
            self._told = words

    @contextlib.contextmanager
    def playing(self, ops_url: str) -> Iterator[None]:
        """Say where the page is."""
        typer.echo(f"dashboard: {ops_url} (while this runs)")
        yield

    def show(self, moment: Moment) -> None:
        """Print the news, and a line when a second is over."""
        for news in moment.news:
            typer.echo(f"{moment.elapsed_s:4.0f} s  -- {news}")
        if moment.elapsed_s < self._next_s:
            return
        self._next_s = moment.elapsed_s + 1
        tally = moment.tally
        shares = "  ".join(f"{rung} {_percent(tally.share(rung))}" for rung in tally.recent)
        facts = "  ".join(f"{name} {value}" for name, value in _facts(moment).items())
        typer.echo(f"{moment.elapsed_s:4.0f} s  {shares} (n={tally.num_recent})  {facts}")

    def summary(self, moment: Moment) -> None:
        """Print the totals, a line for each."""
        typer.echo(f"\nafter {moment.elapsed_s:.0f} s:")
        for name, value in _totals(moment).items():
            typer.echo(f"  {name}: {value}")


class LiveBoard:
    """A board in the terminal, drawn anew a few times a second.

    Args:
        seconds: How long the play is.
    """

    def __init__(self, *, seconds: float, console: Console | None = None) -> None:
        self._seconds = seconds
        self._console = console or Console(highlight=False)
        self._status: Status | None = None
        self._live: Live | None = None
        self._ops_url = ""
        self._news: deque[str] = deque(maxlen=_NUM_NEWS)

    def waiting(self, children: tuple[ChildState, ...]) -> None:
        """Show what still starts beside a spinner."""
        words = escape(_starting(children))
        if self._status is None:
            self._status = self._console.status(words)
            self._status.start()
        self._status.update(words)

    @contextlib.contextmanager
    def playing(self, ops_url: str) -> Iterator[None]:
        """Begin to draw; what was drawn last stays."""
        if self._status is not None:
            self._status.stop()
        self._ops_url = ops_url
        with Live(console=self._console, auto_refresh=False) as self._live:
            yield

    def show(self, moment: Moment) -> None:
        """Draw it."""
        self._news += [f"{moment.elapsed_s:4.0f} s  {news}" for news in moment.news]
        if self._live is not None:
            self._live.update(self.draw(moment), refresh=True)

    def summary(self, moment: Moment) -> None:
        """Print the totals as a table."""
        if self._status is not None:
            self._status.stop()
        table = Table(box=None, title=f"after {moment.elapsed_s:.0f} s", title_justify="left")
        table.add_column("what", style="dim")
        table.add_column("how many", justify="right")
        for name, value in _totals(moment).items():
            table.add_row(escape(name), escape(value))
        self._console.print()
        self._console.print(table)

    def draw(self, moment: Moment) -> RenderableType:
        """Return the board at *moment*."""
        tally = moment.tally
        head = f"[bold]failsoft demo[/]  {moment.elapsed_s:.0f} s of {self._seconds:.0f} s"
        where = f"dashboard [underline]{escape(self._ops_url)}[/]  Ctrl-C ends it"
        now = "nobody yet" if tally.rung is None else escape(tally.rung)
        facts = "   ".join(f"{name} [bold]{value}[/]" for name, value in _facts(moment).items())
        return Group(
            f"{head}  {where}",
            f"answers now: [bold]{now}[/]",
            "",
            _rungs(moment),
            "",
            facts,
            "",
            *(Text(news, style="dim") for news in self._news),
        )


def _rungs(moment: Moment) -> Table:
    tally = moment.tally
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for head in ("rung", f"last {RECENT_S:.0f} s", "", "replies"):
        table.add_column(head, justify="right" if head == "replies" else "left")
    for place, rung in enumerate(tally.total):
        share = tally.share(rung)
        colour = _COLOURS[place % len(_COLOURS)]
        bar = ProgressBar(
            total=1,
            completed=share or 0,
            width=_BAR_COLUMNS,
            complete_style=colour,
            finished_style=colour,
        )
        style = f"bold {colour}" if rung == tally.rung else ""
        name = Text(rung, style=style)
        table.add_row(name, bar, f"{_percent(share):>5}", f"{tally.total[rung]:,}")
    return table


def _starting(children: tuple[ChildState, ...]) -> str:
    if not children:
        return "starting `failsoft up` (a first start fetches a model) ..."
    parts = (f"{child.name} {child.phase.replace('_', ' ')}" for child in children)
    return f"starting: {', '.join(parts)} ..."


def _facts(moment: Moment) -> dict[str, str]:
    tally = moment.tally
    slowest = tally.slowest_first_token_s
    why = f" ({tally.last_failure})" if tally.last_failure else ""
    return {
        "kills": str(moment.num_acts),
        "restarts": str(moment.num_restarts),
        "failures": f"{tally.num_failed}{why}",
        "cut": str(tally.num_cut),
        "slowest first token": "-" if slowest is None else f"{slowest:.2f} s",
    }


def _totals(moment: Moment) -> dict[str, str]:
    total = moment.tally.total
    num = sum(total.values())
    replies = {
        f"replies of {rung}": f"{count:,} ({_percent(count / num if num else None)})"
        for rung, count in total.items()
    }
    facts = _facts(moment)
    facts[_CUT] = facts.pop("cut")
    return {**replies, **facts}


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.0f} %"
