"""How much memory an engine of a version will take, counted before it starts. Units: bytes.

From the shapes that the safetensors files and ``config.json`` name; neither weights nor
torch are loaded. A floor: what loading takes for a while, and the activations of a batch,
come on top.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from failsoft.config.engine import EngineConfig
from failsoft.engine.models.model_files import read_json
from failsoft.engine.models.version import Version
from failsoft.engine.pool_size import blocks_in_pool
from failsoft.errors import UnsupportedModelError

BASE_BYTES = 448 * 1024**2
"""Of an idle engine beside weights and KV: 490 MB of smollm2-135m-instruct in float32, 650 in
bfloat16, 770 in int8, whose loading leaves more behind, 900 of gemma-3-270m. Measured on 2 cores
of an AMD EPYC with torch 2.13; rounded down, since this is a floor."""

_ITEM_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeeds:
    """What one engine takes at least, in bytes."""

    weights_bytes: int
    kv_bytes: int
    """All of its KV pool, though the system hands it over only as it fills."""
    base_bytes: int = BASE_BYTES
    """Interpreter, libraries and what they allocate, whatever the model."""

    @property
    def total_bytes(self) -> int:
        """All of it together."""
        return self.weights_bytes + self.kv_bytes + self.base_bytes


class _Tensor(NamedTuple):
    """One tensor of a safetensors file."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def memory_needs(
    version: Version, folder: Path, *, config: EngineConfig, device: str, computes_bfloat16: bool
) -> MemoryNeeds | None:
    """Return what an engine of *version* takes; None where its config has unknown shapes.

    Args:
        version: Its dtype and options count.
        folder: What it would load: ``config.json`` and safetensors.
        config: The engine's settings.
        device: ``cpu`` or ``cuda``.
        computes_bfloat16: Whether *device* multiplies bfloat16; a CPU that does not keeps
            such weights widened to float32.

    Raises:
        UnsupportedModelError: A file is not what its name says.
    """
    model = _text_config(read_json(folder / "config.json"))
    kv_per_token = _kv_bytes_per_token(model, _ITEM_BYTES[version.weights_dtype])
    limit = config.max_model_len or _number(model, "max_position_embeddings", "n_positions")
    if kv_per_token is None or limit is None:
        return None
    _, kv_bytes = blocks_in_pool(config, kv_bytes_per_token=kv_per_token, max_model_len=limit)
    stored = _ITEM_BYTES[version.weights_dtype]
    computed = stored if computes_bfloat16 or device != "cpu" else 4
    weights = _weights_bytes(
        list(_tensors(folder)),
        vocab_size=int(model.get("vocab_size") or 0),
        stored=stored,
        computed=computed,
        linear=_ITEM_BYTES["int8"] if version.dtype == "int8" else computed,
        has_own_head=device == "cpu",
    )
    return MemoryNeeds(weights_bytes=weights, kv_bytes=kv_bytes)


def _weights_bytes(
    tensors: list[_Tensor],
    *,
    vocab_size: int,
    stored: int,
    computed: int,
    linear: int,
    has_own_head: bool,
) -> int:
    """Return what the weights take once they are laid out for the engine.

    Embeddings stay as stored. The layer that makes logits stays as computed; where it is
    the embedding itself, a CPU's kernels need a copy in their own layout.
    """
    heads = [t for t in tensors if t.name.rpartition(".weight")[0].endswith("head")]
    tables = [t for t in tensors if t not in heads and len(t.shape) == 2 and _rows(t) == vocab_size]
    total = sum(t.size for t in heads) * computed + sum(t.size for t in tables) * stored
    if tables and not heads and has_own_head:
        total += tables[0].size * computed
    for tensor in tensors:
        if tensor not in heads and tensor not in tables:
            total += tensor.size * (linear if len(tensor.shape) == 2 else computed)
    return total


def _rows(tensor: _Tensor) -> int:
    return tensor.shape[0]


def _tensors(folder: Path) -> Iterator[_Tensor]:
    """Yield the tensors of every safetensors file, from the JSON that each begins with.

    Format: https://github.com/huggingface/safetensors#format.

    Raises:
        UnsupportedModelError: A file is none.
    """
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with path.open("rb") as file:
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            for name, tensor in header.items():
                if name != "__metadata__":
                    yield _Tensor(name, tuple(tensor["shape"]))
        except (ValueError, AttributeError, TypeError, KeyError) as exc:
            reason = f"{path.name} is no safetensors file ({exc})"
            raise UnsupportedModelError(model=str(folder), reason=reason) from exc


def _text_config(config: dict[str, Any]) -> dict[str, Any]:
    text = config.get("text_config")
    return text if isinstance(text, dict) else config


def _kv_bytes_per_token(model: dict[str, Any], item_bytes: int) -> int | None:
    """Return what one token's keys and values take in all layers; None for unknown shapes."""
    layers = _number(model, "num_hidden_layers", "n_layer")
    heads = _number(model, "num_attention_heads", "n_head")
    if layers is None or heads is None:
        return None
    kv_heads = _number(model, "num_key_value_heads") or heads
    width = _head_width(model, heads)
    return None if width is None else layers * kv_heads * width * item_bytes


def _head_width(model: dict[str, Any], heads: int) -> int | None:
    """Return the numbers in one head's key and value together."""
    if "kv_lora_rank" in model:  # latent attention: keys and values are kept unpacked
        parts = [_number(model, f"{name}_head_dim") for name in ("qk_nope", "qk_rope", "v")]
        return None if None in parts else sum(part for part in parts if part is not None)
    width = _number(model, "head_dim")
    if width is None:
        hidden = _number(model, "hidden_size", "n_embd")
        width = None if hidden is None else hidden // heads
    return None if width is None else 2 * width


def _number(model: dict[str, Any], *names: str) -> int | None:
    found = (model.get(name) for name in names)
    return next((value for value in found if isinstance(value, int)), None)
