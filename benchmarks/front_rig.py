"""An upstream and a front over it, each in a process of its own; loads run in a third."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[1]
SETTINGS = """
[endpoints.a]
url = "{url}"
model = "m"
price = {{ input_per_mtok = 1, output_per_mtok = 1 }}
[ladders.chat]
rungs = ["a", "cache"]
deadline_s = 120
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """Where both are reached; the front's process."""

    direct_url: str
    front_url: str
    front: psutil.Process

    def load(self, *arguments: object) -> dict[str, Any]:
        """Run one load to its end and return what it saw."""
        line = [sys.executable, "-m", "benchmarks.front_load", *map(str, arguments)]
        ran = subprocess.run(line, cwd=ROOT, env=_environ(), stdout=subprocess.PIPE, check=True)
        seen: dict[str, Any] = json.loads(ran.stdout)
        return seen

    def cpu_s(self) -> float:
        """Seconds of processor time that the front has used."""
        times = self.front.cpu_times()
        return float(times.user + times.system)


def _environ(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


@contextlib.contextmanager
def running() -> Iterator[Rig]:
    """Start both; the front records into a SQLite store and keeps replies."""
    line = [sys.executable, "-m", "benchmarks.instant_upstream"]
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(line, cwd=ROOT, env=_environ(), stdin=pipe, stdout=pipe, text=True) as up,
    ):
        assert up.stdout is not None
        direct_url = f"http://127.0.0.1:{up.stdout.readline().strip()}/v1"
        file = Path(folder) / "failsoft.toml"
        file.write_text(SETTINGS.format(url=direct_url))
        line = [sys.executable, "-m", "failsoft", "front", "--config", str(file), "--port", "0"]
        environ = _environ(FAILSOFT_HOME=folder)
        with subprocess.Popen(line, cwd=ROOT, env=environ, stdout=pipe, text=True) as front:
            assert front.stdout is not None
            try:
                yield Rig(
                    direct_url=direct_url,
                    front_url=front.stdout.readline().strip(),
                    front=psutil.Process(front.pid),
                )
            finally:
                front.terminate()
                front.wait(20)
                up.kill()
