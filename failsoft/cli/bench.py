"""``failsoft bench``: what continuous batching buys here, and how a server holds under load.

Figures go to stdout, progress to stderr. Models load in processes of their own.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from failsoft.cli.bench_files import (
    JsonFile,
    TpotMs,
    TtftMs,
    check_writable,
    in_seconds,
    write,
    write_json,
)
from failsoft.cli.bench_serve import serve

bench_app = typer.Typer(no_args_is_help=True, help="Measure schedules and servers.")

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", help="The settings file.", show_default="failsoft.toml if there is one"
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(help="auto, float32, bfloat16 or int8.", show_default="the version's own"),
]
Version = Annotated[
    str | None,
    typer.Option(
        help="A version of failsoft.toml, or a catalogue model.",
        show_default="the one that the workload was made for",
    ),
]
Threads = Annotated[
    int | None, typer.Option(help="CPU threads of a forward.", show_default="one a core")
]


@bench_app.callback()
def _bench() -> None:
    """Measure schedules and servers."""


bench_app.command("serve")(serve)


@bench_app.command("run")
def run(
    workload: Annotated[
        str, typer.Option(help="A workload file, or one that comes with failsoft.")
    ] = "ragged",
    mode: Annotated[
        str, typer.Option(help="Schedules to compare, with commas between.")
    ] = "sequential,static,static-early,continuous",
    version: Version = None,
    max_running: Annotated[
        int | None,
        typer.Option(help="Requests in one forward at most.", show_default="the workload's own"),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Take only so many of the workload's first requests.")
    ] = None,
    dtype: Dtype = None,
    threads: Threads = None,
    ttft_ms: TtftMs = None,
    tpot_ms: TpotMs = None,
    config: ConfigFile = None,
    json_file: JsonFile = None,
    html: Annotated[
        Path | None, typer.Option(help="Draw who sat in which slot when, as one HTML file.")
    ] = None,
) -> None:
    """Run one workload under several schedules of one engine, side by side."""
    from failsoft.cli.bench_modes import describe, run_modes
    from failsoft.cli.bench_tables import show_modes
    from failsoft.engine.bench.figures import Limits, figures
    from failsoft.engine.bench.picture import picture
    from failsoft.engine.bench.schedule import parse_modes
    from failsoft.engine.bench.workload import load_workload

    modes = parse_modes(mode)
    check_writable("--json", json_file)
    check_writable("--html", html)
    chosen = load_workload(workload)
    chosen = chosen.first(limit or len(chosen.items))
    options = {
        "dtype": dtype,
        "max_running": chosen.max_running if max_running is None else max_running,
    }
    options["num_threads"] = threads
    runs = run_modes(modes, chosen, version=version, options=options, config=config)
    limits = Limits(ttft_s=in_seconds(ttft_ms), tpot_s=in_seconds(tpot_ms))
    found = {one.mode: figures(one, limits=limits) for one in runs}
    document = {
        "machine": describe(runs, chosen, limits=asdict(limits)),
        "modes": {name: figure.document() for name, figure in found.items()},
    }
    show_modes(document["machine"], found)
    write_json(json_file, document)
    write(html, picture(runs, found, title=f"{chosen.name} on {runs[0].facts.version}"))


@bench_app.command("documents")
def documents(
    count: Annotated[int, typer.Option(min=1, help="Documents that arrive at once.")] = 100,
    workload: Annotated[
        str, typer.Option(help="A workload file, or one that comes with failsoft.")
    ] = "documents",
    mode: Annotated[
        str, typer.Option(help="What to compare, with commas between.")
    ] = "sequential,padded,continuous",
    version: Version = None,
    max_running: Annotated[
        int | None,
        typer.Option(help="Requests in one forward at most.", show_default="the workload's own"),
    ] = None,
    window_ms: Annotated[
        float, typer.Option(min=0, help="How long a batching service would collect requests.")
    ] = 100,
    dtype: Dtype = None,
    threads: Threads = None,
    config: ConfigFile = None,
    json_file: JsonFile = None,
) -> None:
    """Serve ragged documents one by one, padded and packed; show the arithmetic beside it."""
    from failsoft.cli.bench_documents import show_documents
    from failsoft.cli.bench_modes import describe, run_modes
    from failsoft.engine.bench import documents as sums
    from failsoft.engine.bench.figures import figures
    from failsoft.engine.bench.schedule import parse_modes
    from failsoft.engine.bench.workload import load_workload

    modes = parse_modes(mode, allowed=sums.MODES)
    check_writable("--json", json_file)
    chosen = load_workload(workload)
    sums.check_count(count, len(chosen.items))
    chosen = chosen.first(count)
    options = {
        "dtype": dtype,
        "max_running": min(count, chosen.max_running) if max_running is None else max_running,
    }
    options["num_threads"] = threads
    runs = run_modes(modes, chosen, version=version, options=options, config=config)
    accounts, shape = [sums.account(one) for one in runs], sums.Shape.of(runs[0])
    kv, waiting = sums.key_values(runs), sums.window(runs, window_s=window_ms / 1000)
    facts = describe(runs, chosen)
    document = {
        "machine": facts,
        "modes": {one.mode: figures(one).document() for one in runs},
        "arithmetic": sums.to_document(accounts, shape, kv, waiting),
    }
    show_documents(facts, accounts, shape, kv, waiting)
    write_json(json_file, document)
