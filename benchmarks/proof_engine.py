"""``make proof-engine``: every line the engine must hold, measured here and now.

``--short`` is what CI repeats on every change: fewer prompts and requests, no fresh
clone, and no test that the suite runs anyway. Both use real weights.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from benchmarks.proof import Line, Measurement, prove
from failsoft.engine.cpu_defaults import set_cpu_defaults

set_cpu_defaults(os.environ)  # before torch is imported, as the server does


def measure_architectures() -> Iterator[Line]:
    """Yield the outcome of the architecture tests, which build tiny random models."""
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/engine/test_architectures.py", "-q"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    yield Line(
        must_hold="at least 12 tiny random architectures equal generate, unfit ones are refused",
        figure=ran.stdout.strip().splitlines()[-1],
        has_passed=ran.returncode == 0,
    )


def measure_server(*, is_short: bool) -> Iterator[Line]:
    """Yield the outcome of bad bodies against a running server, and what it costs idle."""
    from benchmarks import engine_http

    with engine_http.running_server("engine", "serve") as server:
        yield from engine_http.measure_bad_input(server, is_short=is_short)
        yield from engine_http.measure_idle(server)


def measurements(*, is_short: bool) -> list[tuple[str, Measurement]]:
    """Return what to measure, in order; titles of what needs a quiet machine say Speed."""
    from benchmarks import (
        engine_exactness,
        engine_faults,
        engine_memory,
        engine_start,
        engine_throughput,
    )

    start = engine_start.measure_warm_start if is_short else engine_start.measure_fresh_clone
    exact = [
        (f"Exact output: {model}", partial(engine_exactness.measure, model, is_short=is_short))
        for model in ("smollm2-135m-instruct", "gemma-3-270m")
    ]
    # They are tests, which CI has run by then.
    architectures: list[tuple[str, Measurement]] = (
        [] if is_short else [("Exact output: other architectures", measure_architectures)]
    )
    store: list[tuple[str, Measurement]] = (
        [] if is_short else [("Faults of the model store", engine_faults.measure_store)]
    )
    return [
        ("From a command to an answer", start),
        *exact,
        *architectures,
        ("Speed: throughput", partial(engine_throughput.measure_ragged, is_short=is_short)),
        (
            "Speed: prefix cache",
            partial(engine_throughput.measure_shared_prefix, is_short=is_short),
        ),
        ("Memory", partial(engine_memory.measure, is_short=is_short)),
        ("Faults in a forward", engine_faults.measure_forward),
        *store,
        ("Bad input, and nothing to do", partial(measure_server, is_short=is_short)),
    ]


if __name__ == "__main__":
    prove("The engine", measurements, about=__doc__, has_speed=True)
