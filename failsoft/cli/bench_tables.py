"""Figures of a benchmark in a terminal; knows nothing of how they were measured.

What there is no figure for is a dash.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from failsoft.engine.bench.figures import ModeFigures, Spread

NOTHING = "-"
MUCH_CPU = 0.1
"""Share of all cores that others may use before a figure is doubted."""
_BASE = "static"
"""What the others are compared with."""


def show_modes(machine: Mapping[str, Any], found: "Mapping[str, ModeFigures]") -> None:
    """Print the modes side by side, with their ratios to static batches."""
    out = make_console()
    out.print(escape(heading(machine)))
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in found:
        table.add_column(name, justify="right")
    base = found.get(_BASE)
    for label, cell, ratio in _ROWS:
        cells = [cell(figure) for figure in found.values()]
        if all(text == NOTHING for text in cells):
            continue
        table.add_row(label, *cells)
        if ratio is not None and base is not None and len(found) > 1:
            ratios = [_ratio(ratio(figure), ratio(base)) for figure in found.values()]
            table.add_row(f"  to {_BASE}", *ratios, style="dim")
    out.print(table)
    if _BASE in found:
        out.print(
            "static: a reply leaves with its batch, so its first token comes with its last and "
            "it has no TPOT",
            style="dim",
        )
    warn_of_others(out, machine)


def warn_of_others(out: Console, machine: Mapping[str, Any]) -> None:
    """Say which modes had to share the processor, so that their figures mean little."""
    for mode, share in machine["other_cpu_share"].items():
        if share is not None and share > MUCH_CPU:
            out.print(
                f"[yellow]warning:[/] others used {_share(share)} of the processor during "
                f"{mode}; its figures cannot be compared, run it again on an idle machine"
            )


def make_console() -> Console:
    """Return the console for figures; in a pipe no line wraps."""
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=200, no_color=True)


def seconds(value: float | None) -> str:
    """Return *value* seconds with three digits, below one as milliseconds.

    >>> seconds(0.0123), seconds(1.5), seconds(217.4), seconds(None)
    ('12.3 ms', '1.50 s', '217 s', '-')
    """
    if value is None:
        return NOTHING
    return f"{_digits(1000 * value)} ms" if value < 1 else f"{_digits(value)} s"


def spread(value: "Spread") -> str:
    """Return median and 95th percentile in one cell, in the unit that suits the latter."""
    if value.p50 is None or value.p95 is None:
        return NOTHING
    if value.p95 < 1:
        return f"{_digits(1000 * value.p50)} / {_digits(1000 * value.p95)} ms"
    return f"{_digits(value.p50)} / {_digits(value.p95)} s"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 else f"{value:#.3g}"


def heading(machine: Mapping[str, Any]) -> str:
    """Return what was measured on what, in one line."""
    return (
        f"{machine['workload']}: {machine['num_requests']} requests at once, "
        f"{machine['max_running']} slots, {machine['version']} in {machine['dtype']}, "
        f"{machine['num_threads']} threads of {machine['cpu']}"
    )


def _ratio(value: float | None, base: float | None) -> str:
    if value is None or not base:
        return NOTHING
    return f"{value / base:.2f}x"


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


_Cell = Callable[["ModeFigures"], str]
_Number = Callable[["ModeFigures"], float | None]

_ROWS: tuple[tuple[str, _Cell, _Number | None], ...] = (
    ("wall time", lambda f: seconds(f.wall_s), None),
    (
        "tokens/s",
        lambda f: f"{f.output_tokens_per_s:.1f}",
        lambda f: f.output_tokens_per_s,
    ),
    ("TTFT p50 / p95", lambda f: spread(f.ttft_s), lambda f: f.ttft_s.p50),
    ("TPOT p50 / p95", lambda f: spread(f.tpot_s), None),
    ("E2E p50 / p95", lambda f: spread(f.e2e_s), lambda f: f.e2e_s.p50),
    (
        "E2E shortest 1/4",
        lambda f: seconds(f.shortest_e2e_p50_s),
        lambda f: f.shortest_e2e_p50_s,
    ),
    ("slots idle", lambda f: _share(f.slot_idle_ratio), None),
    (
        "goodput/s",
        lambda f: NOTHING if f.goodput_rps is None else f"{f.goodput_rps:.2f}",
        lambda f: f.goodput_rps,
    ),
    (
        "peak memory",
        lambda f: NOTHING if f.peak_rss_bytes is None else decimal(f.peak_rss_bytes),
        None,
    ),
    ("preemptions", lambda f: str(f.preemptions), None),
)
