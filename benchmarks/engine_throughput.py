"""Continuous batching against padded ``generate``, and the prefix cache against none.

``generate`` gets batches as large as the engine runs at once, in order of arrival, padded on
the left to the longest prompt, and runs until the batch's longest output is done: what a
service without per-step scheduling would do. Only the tokens that were asked for count, on
both sides.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from benchmarks.engine_session import load, open_engine, run_batch
from benchmarks.proof import Line
from benchmarks.workload import Item, Workload, load_workload
from failsoft.config.engine import EngineConfig
from failsoft.engine.bench.padded import generate_padded

SHORT_ITEMS, SHORT_RUNNING = 16, 4
"""What CI repeats: as many batches as the whole has, a quarter as wide."""
SHORT_RATIO = 1.3
"""What the short form must reach: fewer rows share a forward, so there is less to win."""
SHORT_PREFIX_RATIO = 1.8
"""Fewer requests share a prefix, and a shorter run is noisier: 2.4 and 3.3 were seen."""


def padded_generate_s(model: Any, workload: Workload) -> float:
    """Return the seconds that padded batches take for *workload*."""
    started_s = time.monotonic()
    for first in range(0, len(workload.items), workload.max_running):
        batch = workload.items[first : first + workload.max_running]
        generate_padded(model, batch)
    return time.monotonic() - started_s


def engine_s(workload: Workload, *, dtype: str, prefix_cache: bool) -> float:
    """Return the seconds that the engine takes for *workload*, from a cold cache."""
    config = EngineConfig(max_running=workload.max_running, prefix_cache=prefix_cache)
    with open_engine(workload.model, dtype=dtype, config=config) as engine:
        # First-use costs of the kernels are not the schedule's.
        run_batch(engine, [Item(prompt_ids=(1, 2, 3), output_len=4)], tag="warm-up")
        batch = run_batch(engine, workload.items)
        assert not any(batch.errors), batch.errors
        return batch.wall_s


def measure_ragged(*, is_short: bool) -> Iterator[Line]:
    """Yield the throughput ratio to ``generate`` in bfloat16.

    Where the CPU has no bfloat16 instructions, ``generate`` in bfloat16 is a weak
    opponent; the full form therefore also names the ratio to float32.
    """
    workload = load_workload("ragged")
    if is_short:
        workload = replace(workload.first(SHORT_ITEMS), max_running=SHORT_RUNNING)
    ours = engine_s(workload, dtype="bfloat16", prefix_cache=True)
    rate = workload.num_output_tokens / ours
    ratios = [("bfloat16", SHORT_RATIO)] if is_short else [("bfloat16", 2.0), ("float32", 1.0)]
    for dtype, wanted in ratios:
        theirs = padded_generate_s(load(workload.model, dtype).model, workload)
        yield Line(
            must_hold=f"{workload.name} in bfloat16, {workload.max_running} running: at least "
            f"{wanted:g}x padded generate in {dtype}",
            figure=f"{theirs / ours:.2f}x ({rate:.0f} against "
            f"{workload.num_output_tokens / theirs:.0f} tokens/s)",
            has_passed=theirs / ours >= wanted,
        )


def measure_shared_prefix(*, is_short: bool) -> Iterator[Line]:
    """Yield what the prefix cache saves where prompts begin alike."""
    workload = load_workload("shared_prefix")
    wanted = 2.5
    if is_short:
        workload, wanted = workload.first(24), SHORT_PREFIX_RATIO
    without = engine_s(workload, dtype="bfloat16", prefix_cache=False)
    cached = engine_s(workload, dtype="bfloat16", prefix_cache=True)
    yield Line(
        must_hold=f"{workload.name} in bfloat16: at least {wanted:g}x faster with the prefix cache",
        figure=f"{without / cached:.2f}x ({without:.1f} s without, {cached:.1f} s with)",
        has_passed=without / cached >= wanted,
    )
