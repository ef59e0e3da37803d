"""Memory counted from shapes against what a prepared model really holds."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from failsoft.config.engine import EngineConfig
from failsoft.engine.device import has_bfloat16
from failsoft.engine.models.memory_needs import BASE_BYTES, MemoryNeeds, memory_needs
from failsoft.engine.prepare import PreparedModel, prepare
from failsoft.errors import UnsupportedModelError
from tests.engine.architectures import SERVED, VOCAB, make_model


def needs_of(folder: Path, dtype: str, *, computes_bfloat16: bool = False) -> MemoryNeeds | None:
    """Count what a version in *dtype* of the model in *folder* takes on a CPU."""
    version: Any = SimpleNamespace(
        dtype=dtype, weights_dtype="bfloat16" if dtype == "int8" else dtype
    )
    return memory_needs(
        version,
        folder,
        config=EngineConfig(),
        device="cpu",
        computes_bfloat16=computes_bfloat16,
    )


def prepared(model: Any, *, is_int8: bool = False) -> PreparedModel:
    """Prepare *model* as an engine does."""
    return prepare(
        model,
        name="tiny",
        vocab_size=VOCAB,
        max_model_len=512,
        is_int8=is_int8,
        config=EngineConfig(),
    )


_LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
    "n_group": 1,
    "topk_group": 1,
}
_NAMED = ("llama", "qwen3", "gemma3_text", "gpt2", "gpt_neox", "opt", "gpt_oss")
SHAPES = {**{name: SERVED[name] for name in _NAMED}, "deepseek_v3": _LATENT}
"""One architecture for each way in which configs name their shapes."""


@pytest.mark.parametrize("model_type", SHAPES)
def test_the_kv_pool_is_the_one_that_an_engine_makes(model_type: str, tmp_path: Path) -> None:
    """Heads and widths are called differently in each architecture's config."""
    model = make_model(model_type, SHAPES[model_type])
    if model_type in ("gpt2", "gpt_neox", "opt"):  # which know no such key
        del model.config.num_key_value_heads
    model.save_pretrained(tmp_path)

    needs = needs_of(tmp_path, "float32")
    pool = prepared(model).runner.pool

    assert needs is not None
    assert needs.kv_bytes == sum(t.numel() * t.element_size() for t in (*pool.keys, *pool.values))
    assert needs.total_bytes == needs.weights_bytes + needs.kv_bytes + BASE_BYTES


def size_of(model: Any) -> int:
    """Return the bytes of every tensor that *model* keeps, packed ones too."""
    tensors = [*model.parameters(), *model.buffers()]
    tensors += [
        value
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, torch.Tensor)
    ]
    unique = {id(tensor): tensor for tensor in tensors}
    return sum(tensor.numel() * tensor.element_size() for tensor in unique.values())


@pytest.mark.parametrize("is_tied", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_the_weights_are_those_that_an_engine_keeps(
    dtype: str, is_tied: bool, tmp_path: Path
) -> None:
    """Embeddings as stored, the head in its own layout, the rest packed or in 8 bits."""
    settings = {"hidden_size": 256, "intermediate_size": 512, "tie_word_embeddings": is_tied}
    model = make_model("llama", settings)
    for parameter in model.parameters():
        parameter.data *= 0.1  # at this width the weights of the other tests saturate
    if dtype != "float32":
        model = model.to(torch.bfloat16)
    model.save_pretrained(tmp_path)

    needs = needs_of(tmp_path, dtype, computes_bfloat16=has_bfloat16("cpu"))
    prepared(model, is_int8=dtype == "int8")
    kept = size_of(model)

    assert needs is not None
    assert needs.weights_bytes == pytest.approx(kept, rel=0.03)  # scales and tables of RoPE


def test_a_file_that_is_no_safetensors_file_is_named(tmp_path: Path) -> None:
    """Its bytes are as stored, so what is wrong is the model."""
    make_model("llama", {}).config.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x02" + bytes(7) + b"[]")

    with pytest.raises(UnsupportedModelError, match=r"model\.safetensors is no safetensors file"):
        needs_of(tmp_path, "float32")


def test_unknown_shapes_are_not_guessed(tmp_path: Path) -> None:
    """None, not 0: a need of nothing would fit anywhere."""
    (tmp_path / "config.json").write_text("{}")

    assert needs_of(tmp_path, "float32") is None
