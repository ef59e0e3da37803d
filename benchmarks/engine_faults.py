"""Faults inside a forward on real weights, and SIGKILL while the model store writes.

Each fault is put into the real model's own forward, for one poisoned request: it
raises, it runs out of memory, or its hidden states turn to NaN. Neighbours must get
the very tokens they get without it.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.engine_session import Batch, load, run_batch
from benchmarks.proof import Line
from benchmarks.workload import Item, load_workload
from failsoft.config.engine import EngineConfig
from failsoft.engine.engine import Engine

_MODEL = "smollm2-135m-instruct"
_NUM_KILLS = 20
_POISON = 4242
"""A token id that only the poisoned prompt holds."""


class _Fault:
    """Hooks on the model: acts while a pack holds the poisoned token."""

    def __init__(self, model: Any) -> None:
        self.kind = "none"
        self._positions: torch.Tensor | None = None
        model.register_forward_pre_hook(self._before, with_kwargs=True)
        model.model.layers[3].register_forward_hook(self._after_layer)

    def _before(self, module: Any, args: Any, kwargs: Any) -> None:
        del module, args
        found = (kwargs["input_ids"][0] == _POISON).nonzero()
        self._positions = found[:, 0] if len(found) else None
        if self._positions is None:
            return
        if self.kind == "exception":
            raise ValueError("a layer does not like this token")
        if self.kind == "out_of_memory":
            raise torch.OutOfMemoryError("no memory for this pack")

    def _after_layer(self, module: Any, args: Any, output: Any) -> Any:
        del module, args
        if self.kind == "bad_logits" and self._positions is not None:
            hidden = output[0] if isinstance(output, tuple) else output
            hidden[:, self._positions] = float("nan")
        return output


def measure_forward() -> Iterator[Line]:
    """Yield one line for each kind of fault."""
    loaded = load(_MODEL, "float32")
    items = [
        Item(
            prompt_ids=tuple(t for t in item.prompt_ids if t != _POISON)[:60],
            output_len=12,
        )
        for item in load_workload("ragged").items[:8]
    ]
    poisoned = Item(prompt_ids=(*items[0].prompt_ids[:20], _POISON), output_len=12)
    with Engine.from_model(loaded, EngineConfig(max_running=16)) as engine:
        fault = _Fault(loaded.model)
        clean = run_batch(engine, items, tag="clean")
        for kind in ("exception", "out_of_memory", "bad_logits"):
            fault.kind = kind
            batch = run_batch(engine, [*items[:4], poisoned, *items[4:]], tag=kind)
            fault.kind = "none"
            after = run_batch(engine, items, tag=f"after-{kind}")
            yield _line(kind, clean, batch, after, engine)


def _line(kind: str, clean: Batch, batch: Batch, after: Batch, engine: Engine) -> Line:
    neighbours = [*batch.outputs[:4], *batch.outputs[5:]]
    same = sum(have == want for have, want in zip(neighbours, clean.outputs, strict=True))
    same_after = sum(a == b for a, b in zip(after.outputs, clean.outputs, strict=True))
    errors = [type(error).__name__ for error in batch.errors if error is not None]
    found_kind = getattr(batch.errors[4], "kind", None)
    used = engine.stats().num_blocks_used
    return Line(
        must_hold=f"{kind} inside one forward hurts only its own request",
        figure=f"{same} of 8 neighbours and {same_after} of 8 afterwards unchanged, "
        f"failed: {errors} as {found_kind}, {used} blocks used",
        has_passed=same == same_after == 8 and found_kind == kind and len(errors) == 1 and not used,
    )


def measure_store() -> Iterator[Line]:
    """Yield whether the model store survives SIGKILL at random moments of a first start."""
    rng = random.Random(11)
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "FAILSOFT_HOME": home}
        failsoft = [sys.executable, "-m", "failsoft"]
        killed = 0
        problems = []
        for _ in range(_NUM_KILLS):
            child = subprocess.Popen(
                [*failsoft, "models", "add", _MODEL, "--dtype", "float32"],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            time.sleep(rng.uniform(0.5, 12.0))
            if child.poll() is None:
                killed += 1
            _kill_group(child)
            verified = subprocess.run(
                [*failsoft, "models", "verify"], env=environment, capture_output=True, text=True
            )
            if verified.returncode != 0:
                problems.append(verified.stderr.strip())
        done = subprocess.run(
            [*failsoft, "models", "add", _MODEL, "--dtype", "float32"],
            env=environment,
            capture_output=True,
            text=True,
        )
        leftovers = [path.name for path in Path(home).rglob("*.part")]
    yield Line(
        must_hold=f"SIGKILL at {_NUM_KILLS} random moments leaves the model store valid",
        figure=f"{killed} killed while at work, {len(problems)} invalid afterwards, "
        f"then added: exit {done.returncode}, {len(leftovers)} partial files left",
        has_passed=not problems and done.returncode == 0 and killed > 0,
    )


def _kill_group(child: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
