"""The handle of a server that fails on command, in a process of its own.

A *fault* is a dict: ``{"do": NAME, ...}``. A plan is a list of faults used up one
request at a time; after it comes ``default``.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

Fault = dict[str, Any]


class FaultServer:
    """Handle of one fault server process, for tests."""

    def __init__(self, name: str = "A") -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fallback.fault_process", name],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = int(self._read()["port"])
        self.url = f"http://127.0.0.1:{self.port}/v1"

    def plan(self, *faults: Fault | str, default: Fault | str = "ok") -> None:
        """Use *faults* for the next requests, then *default*; forget counts."""
        self._ask("plan", faults=[_fault(f) for f in faults], default=_fault(default))

    def mix(self, faults: list[Fault], *, ratio: float, seed: int, default: Fault | str) -> None:
        """Fail a *ratio* of requests, each in a way drawn from *faults*; forget counts."""
        self._ask("mix", faults=faults, ratio=ratio, seed=seed, default=_fault(default))

    @property
    def hits(self) -> int:
        """Requests read since the last plan (connections, where nothing is read)."""
        return int(self.stats()["hits"])

    def stats(self) -> dict[str, Any]:
        """Return hits, closed (times a peer left early), requests (their bodies and headers)."""
        return self._ask("stats")

    def wait_closed(self, count: int, timeout_s: float = 2.0) -> float | None:
        """Return when (monotonic seconds) the peer left for the *count*-th time; None if not."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            closed: list[float] = self.stats()["closed"]
            if len(closed) >= count:
                return closed[count - 1]
            time.sleep(0.01)
        return None

    def wait_hits(self, count: int, timeout_s: float = 10.0) -> None:
        """Return once *count* requests were read since the last plan."""
        until = time.monotonic() + timeout_s
        while self.hits < count:
            assert time.monotonic() < until, f"{self.hits} of {count} requests came"
            time.sleep(0.01)

    def _ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _fault(fault: Fault | str) -> Fault:
    return {"do": fault} if isinstance(fault, str) else fault
