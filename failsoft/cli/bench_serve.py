"""``failsoft bench serve``: bars while it runs, then a row for each rate."""

import asyncio
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from failsoft.cli.bench_files import (
    JsonFile,
    TpotMs,
    TtftMs,
    check_writable,
    in_seconds,
    write_json,
)
from failsoft.cli.bench_tables import NOTHING, make_console, seconds, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from failsoft.engine.bench.figures import Limits
    from failsoft.engine.bench.load import LoadPlan, RateFigures
    from failsoft.engine.bench.stream_client import Target
    from failsoft.engine.bench.workload import Item


def serve(
    url: Annotated[
        str, typer.Option(help="The server, /v1 included.")
    ] = "http://127.0.0.1:8000/v1",
    rate: Annotated[
        str, typer.Option(help="Requests a second, with commas between; inf sends all at once.")
    ] = "1,2,4",
    num_requests: Annotated[
        int, typer.Option(min=1, max=20_000, help="Requests at each rate.")
    ] = 100,
    workload: Annotated[
        str | None,
        typer.Option(
            help="A workload file, or one that comes with failsoft.",
            show_default="made-up texts of 15 to 150 words",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model to ask.", show_default="the first that is listed")
    ] = None,
    endpoint: Annotated[
        str,
        typer.Option(help="chat, completions, or auto: texts as chat, ids as completions."),
    ] = "auto",
    ttft_ms: TtftMs = 1000,
    tpot_ms: TpotMs = 100,
    seed: Annotated[int, typer.Option(min=0, help="Of arrivals and made-up texts.")] = 0,
    timeout_s: Annotated[
        float, typer.Option(min=0.1, help="Seconds without a byte that end a request.")
    ] = 120,
    max_s: Annotated[
        float, typer.Option(min=1, help="Seconds for each rate; what runs then is cancelled.")
    ] = 600,
    api_key_env: Annotated[
        str | None, typer.Option(help="Environment variable with the server's key.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Send requests to any OpenAI-compatible server at given rates; print its goodput."""
    from failsoft.cli.serving import read_api_key
    from failsoft.engine.bench.arrivals import parse_rates
    from failsoft.engine.bench.figures import Limits
    from failsoft.engine.bench.load import LoadPlan, check_url, find_model
    from failsoft.engine.bench.machine import machine
    from failsoft.engine.bench.stream_client import parse_endpoint, target_of

    rates = parse_rates(rate)
    is_chat = parse_endpoint(endpoint)
    url = check_url(url)
    check_writable("--json", json_file)
    api_key = read_api_key(api_key_env)
    items = _items(workload, num_requests, seed=seed)
    target = target_of(
        url, model=model or find_model(url, api_key=api_key), is_chat=is_chat, items=items
    )
    plans = [
        LoadPlan(rate_rps=one, items=tuple(items), seed=seed, timeout_s=timeout_s, max_s=max_s)
        for one in rates
    ]
    limits = Limits(ttft_s=in_seconds(ttft_ms), tpot_s=in_seconds(tpot_ms))
    found = drive(target, plans, api_key=api_key, limits=limits)
    show_rates(target, found, limits=limits)
    document = {
        "machine": machine(),
        "server": {"url": target.url, "model": target.model},
        "limits": asdict(limits),
        "rates": [one.document() for one in found],
    }
    write_json(json_file, document)
    if not any(one.num_ok for one in found):
        raise typer.Exit(1)


def _items(workload: str | None, count: int, *, seed: int) -> "list[Item]":
    from failsoft.engine.bench.arrivals import made_up_items, taken
    from failsoft.engine.bench.workload import load_workload

    if workload is None:
        return made_up_items(count=count, seed=seed)
    return taken(load_workload(workload).items, count)


def drive(
    target: "Target", plans: "Sequence[LoadPlan]", *, api_key: str | None, limits: "Limits"
) -> "list[RateFigures]":
    """Run *plans* one after another, after one request that is not measured.

    Raises:
        BenchError: That first request failed.
    """
    return asyncio.run(_drive(target, plans, api_key=api_key, limits=limits))


async def _drive(
    target: "Target", plans: "Sequence[LoadPlan]", *, api_key: str | None, limits: "Limits"
) -> "list[RateFigures]":
    from failsoft.engine.bench.load import check, run_rate

    first = plans[0]
    await check(target, first.items[0], api_key=api_key, timeout_s=first.timeout_s)
    found = []
    with _bars() as progress:
        for plan in plans:
            on_progress = _bar(progress, f"{plan.rate_rps:g}/s", total=len(plan.items))
            figures = await run_rate(
                target, plan, api_key=api_key, limits=limits, on_progress=on_progress
            )
            found.append(figures)
    return found


def _bars() -> Progress:
    """Return bars on stderr, which show nothing when it is no terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("replies, {task.fields[running]} running, {task.fields[failed]} failed"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def _bar(progress: Progress, label: str, *, total: int) -> "Callable[[int, int, int], None]":
    """Return what moves a new bar: told of requests sent, ended and failed."""
    task = progress.add_task(label, total=total, running=0, failed=0)

    def report(sent: int, ended: int, failed: int) -> None:
        progress.update(task, completed=ended, running=sent - ended, failed=failed)

    return report


def show_rates(target: "Target", found: "Sequence[RateFigures]", *, limits: "Limits") -> None:
    """Print a row for each rate, then failures, then what to think of the figures."""
    out = make_console()
    out.print(
        escape(
            f"{target.model} at {target.url}, {found[0].num_requests} requests at each rate; good: "
            f"TTFT within {seconds(limits.ttft_s)} and TPOT within {seconds(limits.tpot_s)}"
        )
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("rate/s")
    for one in found:
        table.add_column(f"{one.rate_rps:g}", justify="right", no_wrap=True)
    for label, cell in _ROWS:
        table.add_row(label, *map(cell, found))
    out.print(table)
    for line in _remarks(found):
        out.print(escape(line))


def _remarks(found: "Sequence[RateFigures]") -> list[str]:
    lines = []
    for one in found:
        for kind, count in one.errors.items():
            example = one.examples.get(kind)
            lines.append(
                f"at {one.rate_rps:g}/s {count} x {kind}" + (f": {example}" if example else "")
            )
        if one.is_client_bound:
            lines.append(
                f"at {one.rate_rps:g}/s this client was itself the bottleneck (busy "
                f"{100 * one.busy_share:.0f} % of a core, sent {seconds(one.late_p95_s)} late at "
                "p95): the server may do better; drive it from another machine or at lower rates"
            )
        if one.num_ok and not one.are_tokens_counted:
            lines.append(
                f"at {one.rate_rps:g}/s the server counted no tokens; pieces of text were counted"
            )
    return lines


def _rate(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


_ROWS: "tuple[tuple[str, Callable[[RateFigures], str]], ...]" = (
    ("ok", lambda one: str(one.num_ok)),
    ("failed", lambda one: str(sum(one.errors.values()))),
    ("tokens/s", lambda one: _rate(one.output_tokens_per_s)),
    ("TTFT p50 / p95", lambda one: spread(one.ttft_s)),
    ("TPOT p50 / p95", lambda one: spread(one.tpot_s)),
    ("E2E p50 / p95", lambda one: spread(one.e2e_s)),
    ("replies/s", lambda one: _rate(one.requests_per_s)),
    ("goodput/s", lambda one: _rate(one.goodput_rps)),
)
