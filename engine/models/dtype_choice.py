"""Which dtype ``auto`` means: bfloat16 against float32, measured once per machine and model.

The choice is kept in the store under the model's digest and the machine's identity,
with its numbers, so that one version keeps one digest on one machine. Imports torch
inside its functions, and not where the record tells. Times are seconds by ``time.perf_counter``.
"""

import hashlib
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from failsoft.engine.models.gguf_header import read_gguf_header
from failsoft.engine.models.model_files import GGUF_NAME, read_json
from failsoft.engine.models.store import ModelStore, StoredModel
from failsoft.engine.models.version import canonical_json
from failsoft.engine.torch_build import torch_build

ROWS = {"prefill": 64, "decode": 8}
"""Tokens in the two forwards that are timed: one prompt chunk, and a batch of decodes."""

MEASURED = ("float32", "bfloat16")
"""What ``auto`` chooses from: int8 answers differently, so it is only ever asked for."""

_MAX_ROUNDS = 30
_BUDGET_S = 0.3
"""Timing one dtype at one number of rows stops after this long: 1.2 s in all."""


class Widths(NamedTuple):
    """Sizes of one decoder layer: of its hidden state and inside its feed-forward."""

    hidden: int
    feed_forward: int


Measure = Callable[[Widths, str, int, str], float]
"""Takes a layer's widths, a dtype, token rows and a device; returns the seconds it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DtypeChoice:
    """What was chosen, and why."""

    dtype: str
    reason: str
    machine: str
    """Processor or device, and torch's version."""
    seconds: dict[str, dict[str, float]]
    """For each dtype, of one layer's products at each of ``ROWS``; empty when not timed."""


def choose_dtype(
    model: StoredModel,
    *,
    store: ModelStore,
    device: str = "cpu",
    measure: Measure | None = None,
    has_bfloat16: bool | None = None,
) -> DtypeChoice:
    """Return the recorded choice for this machine and model; measure if there is none.

    Args:
        model: Its sizes are what is timed, on random weights.
        store: Where choices are kept.
        device: Where the model will run.
        measure: Stands in for the timing.
        has_bfloat16: Whether the device computes in bfloat16; None asks torch.
    """
    machine = machine_identity(device)
    path = choice_path(model.digest, machine, store=store)
    with store.lock(f"dtype-{model.digest}"):  # two timings at once would slow each other
        record = read_json(path)
        if record:
            return DtypeChoice(**record)  # type: ignore[arg-type]
        if has_bfloat16 is None:
            has_bfloat16 = _has_bfloat16(device)
        if has_bfloat16:
            choice = _measured(model, machine, device, measure or time_layer)
        else:
            choice = DtypeChoice(
                dtype="float32",
                reason="this device has no bfloat16 arithmetic, so bfloat16 cannot be faster",
                machine=machine,
                seconds={},
            )
        store.write(path, canonical_json(asdict(choice)))
    return choice


def _measured(model: StoredModel, machine: str, device: str, measure: Measure) -> DtypeChoice:
    widths = layer_widths(model)
    seconds = {
        dtype: {name: measure(widths, dtype, rows, device) for name, rows in ROWS.items()}
        for dtype in MEASURED
    }
    full, half = (sum(seconds[dtype].values()) for dtype in ("float32", "bfloat16"))
    dtype = "bfloat16" if half < full else "float32"
    reason = f"bfloat16 took {half / full:.2f} times as long as float32"
    return DtypeChoice(dtype=dtype, reason=reason, machine=machine, seconds=seconds)


def choice_path(digest: str, machine: str, *, store: ModelStore) -> Path:
    """Return where the choice for one model on one machine is kept."""
    key = hashlib.sha256(machine.encode()).hexdigest()[:16]
    return store.root / "dtypes" / f"{digest}-{key}.json"


def layer_widths(model: StoredModel) -> Widths:
    """Return the sizes of the model's layers, as its config or its GGUF header says."""
    if model.is_gguf:
        header = read_gguf_header(model.folder / GGUF_NAME)
        values: dict[str, object] = dict(header.metadata)
        names = [f"{header.architecture}.{n}" for n in ("embedding_length", "feed_forward_length")]
    else:
        values = read_json(model.folder / "config.json")
        text = values.get("text_config")
        values = text if isinstance(text, dict) else values
        names = ["hidden_size", "intermediate_size"]
    hidden, feed_forward = (values.get(name) for name in names)
    hidden = hidden if isinstance(hidden, int) else 1024
    return Widths(hidden, feed_forward if isinstance(feed_forward, int) else 4 * hidden)


def machine_identity(device: str) -> str:
    """Return what timings depend on: the processor's or device's name, and torch's version."""
    version = torch_build().version
    if not device.startswith("cuda"):
        return f"{_processor_name()}, torch {version}"
    import torch

    return f"{torch.cuda.get_device_name(device)}, torch {version}"


def computes_bfloat16(device: str, *, store: ModelStore) -> bool:
    """Return whether *device* multiplies bfloat16 in hardware; a CPU's answer is recorded."""
    if device != "cpu":
        return _has_bfloat16(device)
    path = choice_path("bfloat16", machine_identity(device), store=store)
    record = read_json(path)
    if not record:
        record = {"has_bfloat16": _has_bfloat16(device)}
        with store.lock("dtype-bfloat16"):
            store.write(path, canonical_json(record))
    return record["has_bfloat16"] is True


def _has_bfloat16(device: str) -> bool:
    from failsoft.engine import device as devices

    return devices.has_bfloat16(device)


def _processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else f"{platform.machine()} {platform.processor()}".strip()


def time_layer(widths: Widths, dtype: str, rows: int, device: str) -> float:
    """Return the best of some timings of one layer's matrix products, in seconds."""
    import torch

    kind = getattr(torch, dtype)
    shapes = [
        (widths.hidden, widths.hidden),
        (2 * widths.feed_forward, widths.hidden),
        (widths.hidden, widths.feed_forward),
    ]
    pairs = [
        (
            torch.randn(rows, width, device=device, dtype=kind),
            torch.randn(out, width).to(device, kind),
        )
        for out, width in shapes
    ]
    best, started = float("inf"), time.perf_counter()
    with torch.inference_mode():
        for _ in range(_MAX_ROUNDS):
            begin = time.perf_counter()
            for inputs, weight in pairs:
                torch.nn.functional.linear(inputs, weight)
            if device.startswith("cuda"):
                torch.cuda.synchronize(device)
            best = min(best, time.perf_counter() - begin)
            if time.perf_counter() - started > _BUDGET_S:
                break
    return best
