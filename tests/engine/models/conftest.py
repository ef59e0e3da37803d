"""Tiny models made on the spot: a GGUF file, a safetensors folder, a wheel that holds a file."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import LlamaConfig, LlamaForCausalLM

from failsoft.engine.models.store import ModelStore

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TOKENS = [*SPECIAL_TOKENS, *sorted(ByteLevel.alphabet()), "ĠĊ", "ĊĠ", "he", "llo", "ĠĠ"]
MERGES = ["Ċ Ġ", "Ġ Ċ", "Ġ Ġ", "h e", "l l", "ll o"]
TOKENS.insert(-1, "ll")
CHAT_TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"


def make_llama(**changes: Any) -> LlamaForCausalLM:
    """Return a Llama of two thin layers with random weights that are the same each time."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        eos_token_id=2,
        bos_token_id=1,
        pad_token_id=0,
        **changes,
    )
    return LlamaForCausalLM(config).eval()


def _permuted(weight: torch.Tensor, heads: int) -> torch.Tensor:
    # llama.cpp interleaves the two halves that RoPE turns; transformers keeps them apart.
    rows, columns = weight.shape
    return weight.view(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _tensors(model: LlamaForCausalLM) -> dict[str, torch.Tensor]:
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, model.config.num_hidden_layers)
    found = {}
    for name, weight in model.state_dict().items():
        if "q_proj" in name:
            weight = _permuted(weight, model.config.num_attention_heads)
        elif "k_proj" in name:
            weight = _permuted(weight, model.config.num_key_value_heads)
        key = names.get_name(name, try_suffixes=(".weight",))
        assert key is not None
        found[key] = weight
    return found


def write_gguf(path: Path, *, pre: str = "smollm", rope_scaling: str | None = None) -> Path:
    """Write ``make_llama()`` to *path* as llama.cpp would; return *path*."""
    model = make_llama()
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_license("apache-2.0")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    if rope_scaling is not None:
        writer.add_string("llama.rope.scaling.type", rope_scaling)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    kinds = [gguf.TokenType.CONTROL] * len(SPECIAL_TOKENS)
    writer.add_token_types(kinds + [gguf.TokenType.NORMAL] * (len(TOKENS) - len(kinds)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, weight in _tensors(model).items():
        writer.add_tensor(name, weight.numpy().astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    """Return an empty store."""
    return ModelStore(tmp_path / "store")


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a GGUF file of a tiny Llama; do not change it."""
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="session")
def gguf_writer() -> Callable[..., Path]:
    """Return ``write_gguf``."""
    return write_gguf


@pytest.fixture(scope="session")
def llama() -> LlamaForCausalLM:
    """Return the model that ``tiny_gguf`` holds."""
    return make_llama()


def write_folder(folder: Path) -> Path:
    """Write ``make_llama()`` to *folder* as safetensors, config and tokenizer; return *folder*."""
    make_llama().save_pretrained(folder)
    vocab = {token: index for index, token in enumerate(TOKENS)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {**byte_level, "use_regex": True},
        "decoder": {**byte_level, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": MERGES},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture
def tiny_folder(tmp_path: Path) -> Path:
    """Return a folder of safetensors, config and tokenizer of a tiny Llama."""
    return write_folder(tmp_path / "tiny")


@pytest.fixture
def wheel_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that pip takes for the whole package index."""
    index = tmp_path / "index"
    index.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return index


@pytest.fixture
def add_wheel(wheel_index: Path) -> Callable[[str, str, bytes], Path]:
    """Return a function that publishes a wheel: distribution, member, bytes."""

    def add(dist: str, member: str, data: bytes) -> Path:
        name = f"{dist}-1.0.0"
        info = f"{name}.dist-info"
        path = wheel_index / f"{name}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr(member, data)
            metadata = f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0.0\n"
            wheel.writestr(f"{info}/METADATA", metadata + "Requires-Dist: missing-dependency\n")
            tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            wheel.writestr(f"{info}/WHEEL", tag)
            wheel.writestr(f"{info}/RECORD", "")
        return path

    return add
