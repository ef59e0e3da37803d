"""What a mode's process is asked to do, and the asking; loads no torch.

Each mode runs in a process of its own: a cold prefix cache and cold kernels, and a peak of
memory that is that mode's.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import failsoft
from failsoft.engine.bench.run import ModeRun
from failsoft.engine.bench.workload import Item
from failsoft.engine.cpu_defaults import set_cpu_defaults
from failsoft.errors import BenchError, ConfigError

PADDED = "padded"
"""The mode that is no schedule of ours: transformers' own padded generate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One mode of one benchmark."""

    version: str
    mode: str
    items: tuple[Item, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of EngineConfig that were asked for."""
    config_path: str | None = None

    def to_document(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Job":
        """Return what `to_document` gave."""
        items = tuple(
            Item(**{**item, "prompt_ids": tuple(item["prompt_ids"])}) for item in document["items"]
        )
        return cls(**{**document, "items": items})


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Told how a job goes."""

    on_phase: Callable[[str], None] = lambda _: None
    """What is being done before the run itself."""
    on_progress: Callable[[int, int], None] = lambda _tokens, _ended: None
    """Tokens made and replies complete so far."""


def run_job(job: Job, watcher: Watcher) -> ModeRun:
    """Run *job* in a process of its own and return what it was like.

    Raises:
        ConfigError: A setting or the workload is wrong.
        BenchError: It could not be run to its end.
        ModuleNotFoundError: The engine's packages are not installed.
    """
    with _process(job) as process:
        assert process.stdout is not None, "it was asked for"
        for line in process.stdout:
            kind, value = next(iter(json.loads(line).items()))
            if kind == "phase":
                watcher.on_phase(value)
            elif kind == "progress":
                watcher.on_progress(*value)
            elif kind == "result":
                return ModeRun.from_document(value)
            elif kind == "missing":
                raise ModuleNotFoundError(f"No module named {value!r}", name=value)
            elif value["is_config"]:
                raise ConfigError(key="", value=None, allowed="", message=value["message"])
            else:
                raise BenchError(value["message"])
        code = process.wait()
    ended = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    raise BenchError(
        f"the process of mode {job.mode} {ended}; if memory ran out, take fewer or smaller requests"
    )


@contextlib.contextmanager
def _process(job: Job) -> Iterator["subprocess.Popen[bytes]"]:
    """Yield the process that runs *job*; it has ended when the block has."""
    # The child must find this same package, also when it runs uninstalled from a checkout.
    root = str(Path(str(failsoft.__file__)).absolute().parent.parent)
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    environment = {**os.environ, "PYTHONPATH": path}
    set_cpu_defaults(environment)
    if (num_threads := job.options.get("num_threads")) is not None:
        environment["OMP_NUM_THREADS"] = str(num_threads)
    process = subprocess.Popen(
        [sys.executable, "-m", "failsoft.engine.bench.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    try:
        assert process.stdin is not None, "it was asked for"
        with contextlib.suppress(BrokenPipeError):  # it died at once, which its code will tell
            process.stdin.write(json.dumps(job.to_document()).encode() + b"\n")
            process.stdin.flush()
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
