"""What a newcomer waits for: a fresh clone to a ready server, and a second start."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.engine_http import ask_capital, free_port, running_server, wait_ready
from benchmarks.proof import Line
from failsoft.config.catalogue import DEFAULT_MODEL

_ROOT = Path(__file__).parent.parent
LADDER = "chat"
"""What ``failsoft up`` serves when nobody brought settings."""
_SECOND_S = 15
_BUSY_S = 45
"""What CI allows in place of it: a machine with other work is no measure."""


def measure_fresh_clone() -> Iterator[Line]:
    """Yield the seconds of ``make run`` in a fresh clone, downloads included, and again."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "-q", str(_ROOT), str(clone)], check=True)
        environment = {**os.environ, "FAILSOFT_HOME": str(Path(folder) / "home")}
        for name in ("VIRTUAL_ENV", "MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
            environment.pop(name, None)
        for what, limit_s in (("first start", 300), ("second start", _SECOND_S)):
            seconds, answer = _start(clone, environment)
            yield Line(
                must_hold=f"fresh clone, make run, {what}: ready in at most {limit_s} s",
                figure=f"{seconds:.1f} s",
                has_passed=seconds <= limit_s,
            )
            yield _paris(what, answer)


def measure_warm_start() -> Iterator[Line]:
    """Yield the seconds of a start from a warm store, which has what the built-in settings name."""
    subprocess.run(
        [sys.executable, "-m", "failsoft", "models", "add", DEFAULT_MODEL, "--dtype", "bfloat16"],
        stdout=subprocess.DEVNULL,
        check=True,
    )
    with running_server("up") as server:
        yield Line(
            must_hold=f"start from a warm store: ready in at most {_BUSY_S} s",
            figure=f"{server.ready_s:.1f} s",
            has_passed=server.ready_s <= _BUSY_S,
        )
        yield _paris("warm start", ask_capital(server.url, LADDER))


def _start(clone: Path, environment: dict[str, str]) -> tuple[float, str]:
    port = free_port()
    started_s = time.monotonic()
    process = subprocess.Popen(
        ["make", "run", f"ARGS=--port {port}"],
        cwd=clone,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_ready(f"http://127.0.0.1:{port}", process, 1200)
        seconds = time.monotonic() - started_s
        return seconds, ask_capital(f"http://127.0.0.1:{port}", LADDER)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def _paris(what: str, answer: str) -> Line:
    return Line(
        must_hold=f"{what}: the official client's answer names Paris",
        figure=repr(answer),
        has_passed="Paris" in answer,
    )
