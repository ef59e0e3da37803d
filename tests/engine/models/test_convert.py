"""Conversion of GGUF files: the same model, once, in a process of its own."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

from failsoft.config.sources import FileSource
from failsoft.engine.models.convert import ensure_converted, find_conversion
from failsoft.engine.models.fetch import fetch_model
from failsoft.engine.models.load import load_model
from failsoft.engine.models.store import ModelStore, StoredModel
from failsoft.engine.models.version import Version
from failsoft.errors import ModelFileError, UnsupportedModelError


def flip_last_bit(path: Path) -> None:
    """Damage a file as a failing disk does: its size stays."""
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


class Converted:
    """A store with the tiny GGUF model converted to bfloat16, and so to float32 before."""

    def __init__(self, root: Path, gguf: Path) -> None:
        """Convert."""
        self.store = ModelStore(root)
        self.model: StoredModel = fetch_model(FileSource(gguf), store=self.store)
        self.bfloat16 = ensure_converted(self.model, dtype="bfloat16", store=self.store)
        found = find_conversion(self.model, dtype="float32", store=self.store)
        assert found is not None
        self.float32 = found

    def version(self, dtype: str) -> Version:
        """Return the tiny model as a version."""
        return Version(
            name="tiny",
            files=self.model.model_files,
            tokenizer_digest=self.model.tokenizer_digest,
            model_digest=self.model.digest,
            chat_template=None,
            dtype=dtype,
        )


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory, tiny_gguf: Path) -> Converted:
    """Return one conversion for all tests of this module; do not change it."""
    return Converted(tmp_path_factory.mktemp("converted"), tiny_gguf)


def test_converted_weights_are_the_original_ones(
    converted: Converted, llama: LlamaForCausalLM
) -> None:
    """Every tensor comes back bit for bit, RoPE's halves put apart again."""
    weights = load_file(converted.float32 / "model.safetensors")

    expected = llama.state_dict()
    assert set(weights) == set(expected)
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_bfloat16_is_the_rounded_float32(converted: Converted) -> None:
    """The second dtype is a cast of the first: bits equal to torch's own rounding."""
    full = load_file(converted.float32 / "model.safetensors")

    half = load_file(converted.bfloat16 / "model.safetensors")

    assert set(half) == set(full)
    assert all(torch.equal(half[name], full[name].to(torch.bfloat16)) for name in full)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_converted_model_loads_in_its_dtype_and_speaks_like_the_original(
    converted: Converted, llama: LlamaForCausalLM, dtype: str
) -> None:
    """Config, weights and tokenizer of the conversion make the model that was written."""
    ids = torch.tensor([[1, 7, 9, 30, 2]])
    loaded = load_model(converted.version(dtype), store=converted.store)

    logits = loaded.model(ids).logits.float()

    tolerance = 1e-6 if dtype == "float32" else 2e-2
    assert torch.allclose(logits, llama(ids).logits, atol=tolerance)
    assert {weight.dtype for weight in loaded.model.parameters()} == {getattr(torch, dtype)}
    assert loaded.eos_token_ids == {2}
    assert loaded.max_model_len == 128


def test_smollm_splits_numbers_digit_by_digit(converted: Converted) -> None:
    """Space and line break before a digit are one token, before a letter two.

    Regression: transformers 5.24 takes the pre-tokenizer ``smollm`` for GPT-2's, which
    parts them in both places.
    """
    loaded = load_model(converted.version("float32"), store=converted.store)

    tokens = loaded.tokenizer.tokenize("hello \n42 \nx")

    assert tokens == ["he", "llo", "ĠĊ", "4", "2", "Ġ", "Ċ", "x"]


def test_second_conversion_starts_no_process(
    converted: Converted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is converted is found."""
    monkeypatch.setattr(subprocess, "Popen", None)

    folder = ensure_converted(converted.model, dtype="bfloat16", store=converted.store)

    assert folder == converted.bfloat16


def test_cut_conversion_is_noticed_when_it_loads(
    tmp_path: Path, converted: Converted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of another size is damage, never a model."""
    weights = converted.float32 / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[:-1])

    try:
        with pytest.raises(ModelFileError, match=r"model\.safetensors"):
            load_model(converted.version("float32"), store=converted.store)
    finally:
        weights.write_bytes(data)


def test_scaled_rope_is_refused_by_the_converting_process(
    store: ModelStore, tmp_path: Path, gguf_writer: Callable[..., Path]
) -> None:
    """Transformers drops RoPE scaling from GGUF files; long prompts would be silently wrong."""
    path = gguf_writer(tmp_path / "scaled.gguf", rope_scaling="linear")
    model = fetch_model(FileSource(path), store=store)

    with pytest.raises(UnsupportedModelError, match=r"scales RoPE \(linear\)"):
        ensure_converted(model, dtype="float32", store=store)

    assert store.conversions(model.digest) == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_flipped_bit_in_converted_weights_is_never_served(
    converted: Converted, tmp_path: Path, dtype: str
) -> None:
    """The version's digest promises the answers of the weights as they were converted."""
    shutil.copytree(converted.store.root, tmp_path / "copy")
    damaged = tmp_path / "copy" / "conversions" / getattr(converted, dtype).name
    flip_last_bit(damaged / "model.safetensors")

    with pytest.raises(ModelFileError, match="failsoft models add tiny") as caught:
        load_model(converted.version(dtype), store=ModelStore(tmp_path / "copy"))

    assert caught.value.path == str(damaged / "model.safetensors")


def test_damaged_model_is_not_converted(tiny_gguf: Path, store: ModelStore) -> None:
    """Its conversion would be noted as good."""
    model = fetch_model(FileSource(tiny_gguf), store=store)
    flip_last_bit(model.folder / "model.gguf")

    with pytest.raises(ModelFileError, match=r"model\.gguf"):
        ensure_converted(model, dtype="float32", store=store)


def test_a_conversion_without_its_note_says_how_to_make_it_anew(
    converted: Converted, tmp_path: Path
) -> None:
    """It once ended in a bare KeyError."""
    shutil.copytree(converted.store.root, tmp_path / "copy")
    note = tmp_path / "copy" / "conversions" / converted.float32.name / "conversion.json"
    note.unlink()

    with pytest.raises(ModelFileError, match="failsoft models add tiny") as caught:
        load_model(converted.version("float32"), store=ModelStore(tmp_path / "copy"))

    assert caught.value.path == str(note)


def test_a_manifest_that_was_changed_with_its_files_is_not_served(
    converted: Converted, tmp_path: Path
) -> None:
    """Bytes that match a forged note still do not give the model's digest."""
    shutil.copytree(converted.store.root, tmp_path / "copy")
    version = converted.version("float32")
    manifest = tmp_path / "copy" / "models" / version.model_digest / "manifest.json"
    noted = json.loads(manifest.read_text())
    noted["files"][0]["sha256"] = "0" * 64
    manifest.write_text(json.dumps(noted))

    with pytest.raises(ModelFileError, match="failsoft models add tiny") as caught:
        load_model(version, store=ModelStore(tmp_path / "copy"))

    assert caught.value.path == str(manifest)
