"""What the bench must show: continuous batching against static batches and one at a time.

Ratios of modes of one run, each in a process of its own as ``failsoft bench`` runs them. The
short form takes one process for all, fewer and shorter requests, and asks for less: fewer
rows share a forward, so there is less to win.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from benchmarks.proof import Line
from failsoft.engine.bench.figures import figures
from failsoft.engine.bench.job import Job, Watcher, run_job
from failsoft.engine.bench.run import ModeRun
from failsoft.engine.bench.workload import Workload, load_workload

RATIO, SHORT_RATIO = 1.6, 1.2
SHORTEST_E2E, SHORT_SHORTEST_E2E = 0.4, 0.7
DOCUMENTS_RATIO, SHORT_DOCUMENTS_RATIO = 3.5, 1.5
_DTYPE = "bfloat16"

Run = Callable[[str, Workload], ModeRun]
"""Runs one mode of a workload."""


def measure(*, is_short: bool) -> Iterator[Line]:
    """Yield what continuous batching is worth on ragged requests and on documents."""
    if is_short:
        yield from _measure_short()
        return
    yield from _ragged(load_workload("ragged"), _in_a_process)
    yield from _documents(load_workload("documents"), _in_a_process)


def _in_a_process(mode: str, workload: Workload) -> ModeRun:
    job = Job(
        version=workload.model,
        mode=mode,
        items=workload.items,
        options={"dtype": _DTYPE, "max_running": workload.max_running},
    )
    return run_job(job, Watcher())


def _measure_short() -> Iterator[Line]:
    from failsoft.engine.bench.session import measure as measure_mode
    from failsoft.engine.bench.session import open_session, warm_up

    ragged = load_workload("ragged").first(16)
    items = tuple(replace(item, output_len=item.output_len // 2) for item in ragged.items)
    ragged = replace(ragged, max_running=4, items=items)
    documents = load_workload("documents").first(6)
    documents = replace(documents, max_running=4)
    # One engine for all modes, so nothing may be found in its cache by the second.
    options = {"dtype": _DTYPE, "max_running": 4, "prefix_cache": False}
    with open_session(
        ragged.model, options=options, config_path=None, num_requests=16, on_phase=lambda _: None
    ) as session:
        warm_up(session)

        def run(mode: str, workload: Workload) -> ModeRun:
            return measure_mode(session, mode, workload.items)

        yield from _ragged(ragged, run, ratio=SHORT_RATIO, shortest=SHORT_SHORTEST_E2E)
        yield from _documents(documents, run, ratio=SHORT_DOCUMENTS_RATIO)


def _ragged(
    workload: Workload, run: Run, *, ratio: float = RATIO, shortest: float = SHORTEST_E2E
) -> Iterator[Line]:
    runs = [run(mode, workload) for mode in ("static", "continuous")]
    static, continuous = map(figures, runs)
    name = f"{workload.name} in {_DTYPE}, {workload.max_running} running"
    gain = static.wall_s / continuous.wall_s
    yield Line(
        must_hold=f"{name}: continuous at least {ratio:g}x static",
        figure=f"{gain:.2f}x ({continuous.output_tokens_per_s:.0f} against "
        f"{static.output_tokens_per_s:.0f} tokens/s, slots idle "
        f"{continuous.slot_idle_ratio:.0%} against {static.slot_idle_ratio:.0%}){_others(runs)}",
        has_passed=gain >= ratio,
    )
    assert continuous.shortest_e2e_p50_s is not None, "there are at least four requests"
    assert static.shortest_e2e_p50_s is not None, "there are at least four requests"
    share = continuous.shortest_e2e_p50_s / static.shortest_e2e_p50_s
    yield Line(
        must_hold=f"{name}: median E2E of the shortest quarter at most {shortest:g}x static's",
        figure=f"{share:.2f}x ({continuous.shortest_e2e_p50_s:.1f} against "
        f"{static.shortest_e2e_p50_s:.1f} s)",
        has_passed=share <= shortest,
    )


def _documents(workload: Workload, run: Run, *, ratio: float = DOCUMENTS_RATIO) -> Iterator[Line]:
    runs = [run(mode, workload) for mode in ("sequential", "continuous")]
    sequential, continuous = runs
    gain = sequential.wall_s / continuous.wall_s
    yield Line(
        must_hold=f"{len(workload.items)} documents in {_DTYPE}: continuous at least {ratio:g}x "
        "one after another",
        figure=f"{gain:.2f}x ({continuous.wall_s:.1f} against {sequential.wall_s:.1f} s)"
        + _others(runs),
        has_passed=gain >= ratio,
    )


def _others(runs: Sequence[ModeRun]) -> str:
    """Return a remark where other processes had much of the processor."""
    shares = [run.other_cpu_share for run in runs if run.other_cpu_share is not None]
    if not shares or max(shares) < 0.1:
        return ""
    return f"; others used up to {max(shares):.0%} of the processor"
