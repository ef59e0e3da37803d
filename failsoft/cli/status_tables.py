"""A `Standing` in a terminal, and as plain lines where the output is piped.

Knows nothing of where it comes from. Text of others is escaped: it may hold rich's markup.
"""

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from failsoft.dashboard import words
from failsoft.dashboard.incidents import GOOD_KINDS
from failsoft.dashboard.picture import NOTHING_RUNS
from failsoft.dashboard.share_table import share_table
from failsoft.dashboard.standing import (
    Answers,
    FileDifference,
    Ladder,
    PinnedSlot,
    Rung,
    Standing,
    Unknown,
    Verdict,
)
from failsoft.run_state import ChildState

_COLOURS = {
    Answers.YES: "green",
    Answers.DEGRADED: "yellow",
    Answers.NO: "red",
    Answers.UNKNOWN: "magenta",
}
_MARKS = {
    Answers.YES: "●",
    Answers.DEGRADED: "▲",
    Answers.NO: "■",
    Answers.UNKNOWN: "○",
}
_PIPE_COLUMNS = 1_000
"""Lines in a pipe do not wrap: what wraps can be neither cut nor searched."""


def show(standing: Standing, *, is_terminal: bool) -> None:
    """Print *standing* to stdout: as wide as the terminal, or in plain whole lines."""
    if is_terminal:
        print_standing(standing, Console(highlight=False))
        return
    out = Console(highlight=False, width=_PIPE_COLUMNS, no_color=True)
    with out.capture() as captured:
        print_standing(standing, out)
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())


def is_nothing(standing: Standing) -> bool:
    """Whether nothing runs here, so that one line says it all."""
    return standing.verdict.reason.startswith(NOTHING_RUNS)


def print_standing(standing: Standing, out: Console) -> None:
    """Print the verdict, what broke, each ladder's rungs, the pins and the processes."""
    _print_verdict(standing, out)
    _print_incidents(standing, out)
    for ladder in standing.ladders:
        _print_rungs(standing, ladder, out)
        _print_shares(ladder, out)
    _print_pins(standing, out)
    _print_processes(standing, out)


def _print_verdict(standing: Standing, out: Console) -> None:
    verdict, now_ms = standing.verdict, standing.at_ms
    line = _verdict(verdict, words.headline(verdict))
    out.print(f"{line} {escape(words.verdict_line(verdict, now_ms=now_ms))}".rstrip())
    out.print(escape(verdict.reason))
    if len(standing.ladders) > 1:
        for ladder in standing.ladders:
            mine = ladder.verdict
            who = escape(words.verdict_line(mine, now_ms=now_ms))
            out.print(f"{_verdict(mine, ladder.name)} {words.headline(mine)} {who}".rstrip())
    for warning in words.warnings(standing):
        out.print(f"[yellow]warning:[/] {escape(warning)}")


def _verdict(verdict: Verdict, text: str) -> str:
    colour = _COLOURS[verdict.answers]
    return f"[bold {colour}]{_MARKS[verdict.answers]} {escape(text)}[/]"


def _print_incidents(standing: Standing, out: Console) -> None:
    if isinstance(standing.incidents, Unknown):
        out.print(f"\nwhat broke: {escape(_unknown(standing.incidents))}")
        return
    if not standing.incidents:
        out.print("\nwhat broke: nothing is recorded")
        return
    table = _table("what broke", "", "", "")
    for incident in standing.incidents:
        kind = escape(words.kind(incident.kind))
        if incident.kind in GOOD_KINDS:
            kind = f"[green]{kind}[/]"
        many = f" x{incident.num}" if incident.num > 1 else ""
        ago = f"{words.age(incident.at_ms, now_ms=standing.at_ms)} ago"
        table.add_row(ago, f"{kind}{many}", escape(incident.subject), escape(incident.detail))
    out.print()
    out.print(table)


def _print_rungs(standing: Standing, ladder: Ladder, out: Console) -> None:
    engines = {engine.slot: engine for engine in standing.engines}
    table = _table(f"rungs of {ladder.name}", "state", "breaker", "queue", "version")
    for rung in ladder.rungs:
        engine = engines.get(rung.slot or "")
        table.add_row(
            _rung_name(rung),
            escape(words.rung_state(rung)),
            words.breaker(rung),
            escape(words.rung_queue(rung, engine.queue)) if engine else words.NONE,
            escape(words.version(rung.version_name, rung.version_digest)),
        )
    out.print()
    out.print(table)
    for rung in ladder.rungs:
        if (error := rung.last_error) is not None:
            ago = words.age(error.at_ms, now_ms=standing.at_ms)
            text = f"last error of {rung.name}, {ago} ago: {words.last_error(error)}"
            out.print(f"[dim]{escape(text)}[/]")


def _rung_name(rung: Rung) -> str:
    colour = {True: "green", False: "red", None: "magenta"}[rung.can_serve]
    return f"[{colour}]{escape(rung.name)}[/]"


def _print_shares(ladder: Ladder, out: Console) -> None:
    if isinstance(ladder.traffic, Unknown):
        out.print(f"\nwho answered {escape(ladder.name)}: {escape(_unknown(ladder.traffic))}")
        return
    shares = share_table(ladder.traffic)
    heads = [f"{head.name} ({head.num})" for head in shares.heads]
    table = _table(f"who answered {ladder.name}", *heads)
    for row in shares.rows:
        cells = [f"[red]{cell.text}[/]" if cell.is_bad else cell.text for cell in row.cells]
        table.add_row(escape(row.name), *cells)
    out.print()
    out.print(table)


def _print_pins(standing: Standing, out: Console) -> None:
    """Print what each slot is pinned to; where the store says nothing, others say so."""
    if isinstance(standing.pins, Unknown) or not standing.pins:
        return
    table = _table("pins", "version", "since", "by", "settings file", "move")
    for pin in standing.pins:
        table.add_row(
            escape(pin.slot),
            escape(words.version(pin.version_name, pin.version_digest)),
            f"{words.age(pin.since_ms, now_ms=standing.at_ms)} ago",
            escape(words.pinned_by(pin)),
            _file_cell(pin),
            escape(words.move_cell(pin)),
        )
    out.print()
    out.print(table)


def _file_cell(pin: PinnedSlot) -> str:
    text = escape(words.file_cell(pin))
    return f"[yellow]{text}[/]" if isinstance(pin.differs_from_file, FileDifference) else text


def _print_processes(standing: Standing, out: Console) -> None:
    if isinstance(standing.supervisor, Unknown):
        out.print(f"\nprocesses: {escape(_unknown(standing.supervisor))}")
    else:
        table = _table("processes", "phase", "since", "pid", "restarts", "last exit", "version")
        for child in standing.supervisor.children:
            table.add_row(*_child(child, now_ms=standing.at_ms))
        out.print()
    out.print(table)
    if isinstance(standing.front, Unknown):
        out.print(f"front: {escape(_unknown(standing.front))}")
    if standing.api_url is not None:
        out.print(f"\nAPI {escape(standing.api_url)}, settings {escape(standing.settings or '-')}")


def _child(child: ChildState, *, now_ms: int) -> list[str]:
    colour = {"running": "green", "gave_up": "red"}.get(child.phase, "yellow")
    return [
        escape(child.name),
        f"[{colour}]{words.phase(child)}[/]",
        words.age(child.since_ms, now_ms=now_ms),
        words.NONE if child.pid is None else str(child.pid),
        str(child.num_restarts),
        escape(child.last_exit or words.NONE),
        escape(child.version or words.NONE),
    ]


def _table(title: str, *heads: str) -> Table:
    """Return a table whose first column's head names it."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(f"[bold]{escape(title)}[/]", no_wrap=True)
    for head in heads:
        table.add_column(escape(head), overflow="fold")
    return table


def _unknown(part: Unknown) -> str:
    return f"{words.UNKNOWN}: {part.reason}"
