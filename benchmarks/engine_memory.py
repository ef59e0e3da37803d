"""Memory of a serving process: its peak under load, and that it does not creep.

Run as a process of its own (``python -m benchmarks.engine_memory``), so that nothing
else's peak is counted; prints JSON.
"""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.engine_session import open_engine, run_batch
from benchmarks.proof import Line
from benchmarks.workload import Item, load_workload
from failsoft.config.engine import EngineConfig
from failsoft.engine.engine import Engine

_MODEL = "smollm2-135m-instruct"
_CHUNK = 100


def peak_rss_bytes() -> int:
    """Return the largest resident size this process ever had (Linux: VmHWM)."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def churn(engine: Engine, count: int) -> list[int]:
    """Run *count* short requests, a third aborted at random; return RSS after each chunk."""
    rng = random.Random(7)
    sizes = []
    for first in range(0, count, _CHUNK):
        items = [
            Item(
                prompt_ids=tuple(rng.randrange(1000, 40_000) for _ in range(rng.randrange(4, 40))),
                output_len=rng.randrange(1, 8),
            )
            for _ in range(_CHUNK)
        ]
        _run_with_aborts(engine, items, tag=f"churn{first}", rng=rng)
        sizes.append(psutil.Process().memory_info().rss)
    return sizes


def _run_with_aborts(engine: Engine, items: list[Item], *, tag: str, rng: random.Random) -> None:
    import threading

    stop = threading.Event()

    def aborter() -> None:
        names = [f"{tag}-{index}" for index in range(len(items))]
        for name in rng.sample(names, len(names) // 3):
            engine.abort(name)
            stop.wait(0.01)

    thread = threading.Thread(target=aborter)
    thread.start()
    run_batch(engine, items, tag=tag)
    stop.set()
    thread.join()


def main(count: int, num_ragged: int) -> None:
    """Measure in this process and print JSON."""
    config = EngineConfig(max_running=16, max_waiting=1000)
    with open_engine(_MODEL, dtype="bfloat16", config=config) as engine:
        workload = load_workload("ragged").first(num_ragged)
        run_batch(engine, workload.items, tag="ragged")
        peak = peak_rss_bytes()
        sizes = churn(engine, count)
        used = engine.stats().num_blocks_used
    print(json.dumps({"peak_rss_bytes": peak, "rss_bytes": sizes, "blocks_used": used}))


def measure(*, is_short: bool) -> Iterator[Line]:
    """Yield peak, creep and leftover blocks of a process under load."""
    count, num_ragged = (400, 24) if is_short else (2000, 64)
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.engine_memory", str(count), str(num_ragged)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(ran.stdout.splitlines()[-1])
    peak = found["peak_rss_bytes"] / 1e9
    yield Line(
        must_hold="peak RSS at most 1.5 GB, SmolLM2 in bfloat16, 16 running",
        figure=f"{peak:.2f} GB",
        has_passed=peak <= 1.5,
    )
    # The first chunk fills allocator caches. The short form's ragged requests write only part of
    # the KV pool, whose pages count from their first use on: its first half writes the rest.
    sizes = [size / 1e6 for size in found["rss_bytes"]]
    counted = sizes[len(sizes) // 2 :] if is_short else sizes[1:]
    yield Line(
        must_hold=f"{count} short requests with random aborts leave RSS flat (within 20 MB)"
        + (", second half" if is_short else ""),
        figure=f"{counted[0]:.0f} MB to {counted[-1]:.0f} MB, "
        f"range {max(counted) - min(counted):.1f} MB",
        has_passed=abs(counted[-1] - counted[0]) <= 20,
    )
    yield Line(
        must_hold="every KV block is free afterwards",
        figure=f"{found['blocks_used']} used",
        has_passed=found["blocks_used"] == 0,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
