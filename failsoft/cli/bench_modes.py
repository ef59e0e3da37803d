"""Modes of a benchmark, each in a process of its own, with bars on stderr."""

import sys
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from failsoft.engine.bench.job import Job, Watcher
    from failsoft.engine.bench.run import ModeRun
    from failsoft.engine.bench.workload import Workload


def run_modes(
    modes: "Sequence[str]",
    workload: "Workload",
    *,
    version: str | None,
    options: dict[str, Any],
    config: "Path | None",
) -> "list[ModeRun]":
    """Run *workload* in each of *modes*, one process after another, bars on stderr.

    Raises:
        ConfigError: A setting or the workload is wrong.
        FailsoftError: A mode could not be run to its end.
    """
    from failsoft.config.engine import EngineConfig
    from failsoft.engine.bench.job import Job, run_job

    asked = {key: value for key, value in options.items() if value is not None}
    EngineConfig(**asked)  # a wrong value fails before a process is started
    runs = []
    for mode in modes:
        job = Job(
            version=version or workload.model,
            mode=mode,
            items=workload.items,
            options=asked,
            config_path=str(config) if config is not None else None,
        )
        with _bars(job) as watcher:
            runs.append(run_job(job, watcher))
    return runs


@contextmanager
def _bars(job: "Job") -> "Iterator[Watcher]":
    """Yield what shows on stderr how *job* goes: a line for each phase, then a bar."""
    from failsoft.engine.bench.job import Watcher

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    total = sum(item.output_len for item in job.items)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    ended = TextColumn("tokens, {task.fields[ended]} replies")
    with Progress(
        *columns,
        ended,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as progress:
        task = progress.add_task(job.mode, total=total, ended=0, visible=False)

        def on_phase(text: str) -> None:
            progress.console.print(f"{job.mode}: {text} …", style="dim", markup=False)

        def on_progress(num_tokens: int, num_ended: int) -> None:
            progress.update(task, completed=num_tokens, ended=num_ended, visible=True)

        yield Watcher(on_phase=on_phase, on_progress=on_progress)


def describe(runs: "Sequence[ModeRun]", workload: "Workload", **more: Any) -> dict[str, Any]:
    """Return what was run on what: figures of two runs are comparable when these are equal."""
    from failsoft.engine.bench.machine import machine

    return {
        **machine(),
        **asdict(runs[0].facts),
        "workload": workload.name,
        "num_requests": len(workload.items),
        "max_running": runs[0].num_slots,
        "other_cpu_share": {run.mode: run.other_cpu_share for run in runs},
        **more,
    }
