"""Loading safetensors: complete, in the asked dtype, quiet, and with every end token."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from failsoft.config.sources import FileSource
from failsoft.engine.models.fetch import fetch_model
from failsoft.engine.models.load import load_model
from failsoft.engine.models.resolve import resolve_version
from failsoft.engine.models.store import ModelStore
from failsoft.engine.models.version import Version
from failsoft.errors import ModelFileError, ModelSourceError, UnsupportedModelError

MakeVersion = Callable[..., Version]


def edit_json(path: Path, **changes: Any) -> None:
    """Set keys of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.fixture
def make_version(store: ModelStore, tiny_folder: Path, tmp_path: Path) -> MakeVersion:
    """Return a function that stores the tiny folder and makes a version of it."""

    def make(dtype: str = "float32", toml: str = "") -> Version:
        path = tmp_path / "failsoft.toml"
        path.write_text(f"[versions.tiny]\nsource = 'file:{tiny_folder}'\n{toml}")
        return resolve_version("tiny", config_path=path, dtype=dtype, store=store)

    return make


def test_loaded_model_cannot_train(store: ModelStore, make_version: MakeVersion) -> None:
    """Eval mode and no gradients: dropout and autograd have no place in serving."""
    loaded = load_model(make_version(), store=store)

    assert not loaded.model.training
    assert not any(weight.requires_grad for weight in loaded.model.parameters())


def test_float32_checkpoint_loads_as_bfloat16_when_asked(
    store: ModelStore, make_version: MakeVersion
) -> None:
    """The version's dtype wins over the checkpoint's."""
    loaded = load_model(make_version("bfloat16"), store=store)

    assert {weight.dtype for weight in loaded.model.parameters()} == {torch.bfloat16}


def test_end_tokens_are_the_union_of_all_three_places(
    store: ModelStore, tiny_folder: Path, make_version: MakeVersion
) -> None:
    """Generation config says [5, 6], config says 7, the tokenizer says <|endoftext|>, id 0."""
    edit_json(tiny_folder / "generation_config.json", eos_token_id=[5, 6])
    edit_json(tiny_folder / "config.json", eos_token_id=7)

    loaded = load_model(make_version(), store=store)

    assert loaded.eos_token_ids == {0, 5, 6, 7}


def test_version_caps_the_models_own_length(store: ModelStore, make_version: MakeVersion) -> None:
    """A smaller ``max_model_len`` wins, a larger one does not."""
    small = load_model(make_version(toml="engine = {max_model_len = 50}"), store=store)
    large = load_model(make_version(toml="engine = {max_model_len = 500}"), store=store)

    assert (small.max_model_len, large.max_model_len) == (50, 128)


def test_template_and_defaults_of_the_version_reach_the_model(
    store: ModelStore, tiny_folder: Path, make_version: MakeVersion
) -> None:
    """What the digest covers is what is served."""
    edit_json(tiny_folder / "generation_config.json", temperature=0.5, top_k=7, do_sample=True)

    loaded = load_model(make_version(toml="template = 'plain'"), store=store)

    assert loaded.tokenizer.chat_template == loaded.chat_template == loaded.version.chat_template
    assert loaded.stop_strings == ("\nUser:",)
    assert loaded.generation_defaults == {"temperature": 0.5, "top_k": 7}
    assert loaded.vocab_size == loaded.model.get_output_embeddings().weight.shape[0]


def test_checkpoint_without_a_weight_is_refused(
    store: ModelStore, tiny_folder: Path, make_version: MakeVersion
) -> None:
    """Transformers fills the gap with random numbers and only logs it."""
    path = tiny_folder / "model.safetensors"
    weights = load_file(path)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, path, metadata={"format": "pt"})

    with pytest.raises(UnsupportedModelError, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        load_model(make_version(), store=store)


def test_unknown_architecture_is_refused(
    store: ModelStore, tiny_folder: Path, make_version: MakeVersion
) -> None:
    """Transformers' own error becomes one of ours."""
    edit_json(tiny_folder / "config.json", model_type="unheard_of")

    with pytest.raises(UnsupportedModelError, match="unheard_of"):
        load_model(make_version(), store=store)


def test_version_whose_model_is_gone_says_how_to_fetch_it(
    store: ModelStore, make_version: MakeVersion
) -> None:
    """A removed model is not silently fetched while serving."""
    version = make_version()
    store.remove(version.model_digest)

    with pytest.raises(ModelSourceError, match="failsoft models add tiny"):
        load_model(version, store=store)


def test_damaged_store_is_noticed(store: ModelStore, make_version: MakeVersion) -> None:
    """A truncated file has another size than was noted."""
    version = make_version()
    path = store.root / "models" / version.model_digest / "files" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(ModelFileError, match=r"model\.safetensors"):
        load_model(version, store=store)


def test_flipped_bit_in_stored_weights_is_refused(
    store: ModelStore, make_version: MakeVersion
) -> None:
    """Its size is right, so only its digest tells; the error says how to repair it."""
    version = make_version()
    path = store.root / "models" / version.model_digest / "files" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1]))

    with pytest.raises(ModelFileError, match="failsoft models add tiny") as caught:
        load_model(version, store=store)

    assert caught.value.path == str(path)
    assert caught.value.actual != caught.value.expected


def test_loading_prints_nothing(
    store: ModelStore, make_version: MakeVersion, capfd: pytest.CaptureFixture[str]
) -> None:
    """No bars, no advice, no deprecations: a server's stderr is for what went wrong."""
    version = make_version()

    load_model(version, store=store)

    assert capfd.readouterr() == ("", "")


def test_same_bytes_give_the_same_version_from_another_path(
    store: ModelStore, tiny_folder: Path, make_version: MakeVersion, tmp_path: Path
) -> None:
    """Where files came from is no part of a version."""
    version = make_version()
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in tiny_folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())

    assert fetch_model(FileSource(copy), store=store).digest == version.model_digest
