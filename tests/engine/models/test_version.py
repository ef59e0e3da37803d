"""The digest of a version: what it covers, what it leaves out, and that it never changes."""

import subprocess
import sys
from dataclasses import replace

import pytest

from failsoft.engine.models.version import (
    FileDigest,
    Version,
    canonical_json,
    files_digest,
    sorted_items,
)
from failsoft.errors import ConfigError
from failsoft.records import TokenPrice


def make_version() -> Version:
    """Return a version with every field set."""
    return Version(
        name="chat",
        files=(FileDigest("config.json", "1" * 64), FileDigest("model.safetensors", "2" * 64)),
        tokenizer_digest="3" * 64,
        model_digest="4" * 64,
        chat_template="{{ messages }} ß é",
        stop_strings=("\nUser:",),
        generation_defaults=(("temperature", 0.7), ("top_k", 20)),
        system_prompt="Be brief.",
        dtype="float32",
        engine_options=sorted_items({"max_model_len": 2048, "max_running": 4}),
        price=TokenPrice(input_per_mtok=1.0, output_per_mtok=2.0),
    )


def test_digest_of_a_known_version_is_frozen() -> None:
    """Pins written years ago must still match: if this fails, raise SCHEMA and keep the old way."""
    digest = make_version().digest

    assert digest == "5f10eb5b3a6a28f85940a072d54e02b86d4a74f8135c06b1ceae96454c1d74c5"


def test_manifest_as_bytes_is_sorted_compact_utf8() -> None:
    """The canonical form is one byte string: sorted keys, no spaces, no escapes."""
    manifest = make_version().to_manifest()

    data = canonical_json(manifest)

    assert data.startswith('{"chat_template":"{{ messages }} ß é","dtype":"float32",'.encode())
    assert b'"engine_options":{"max_model_len":2048}' in data
    assert data.endswith(b'"system_prompt":"Be brief.","tokenizer":"' + b"3" * 64 + b'"}')


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"price": None},
        {"engine_options": sorted_items({"max_model_len": 2048, "max_running": 16})},
    ],
    ids=["name", "price", "an option of speed"],
)
def test_digest_ignores_what_answers_do_not_depend_on(change: dict[str, object]) -> None:
    """A new price or name is the same version."""
    version = make_version()

    changed = replace(version, **change)  # type: ignore[arg-type]

    assert changed.digest == version.digest


@pytest.mark.parametrize(
    "change",
    [
        {"files": (FileDigest("config.json", "1" * 64), FileDigest("model.safetensors", "5" * 64))},
        {"tokenizer_digest": "5" * 64},
        {"chat_template": None},
        {"stop_strings": ()},
        {"generation_defaults": (("temperature", 0.8), ("top_k", 20))},
        {"system_prompt": None},
        {"dtype": "bfloat16"},
        {"engine_options": sorted_items({"max_model_len": 4096})},
    ],
    ids=lambda change: next(iter(change)),
)
def test_digest_changes_with_all_that_shapes_answers(change: dict[str, object]) -> None:
    """Every field of the manifest is covered."""
    version = make_version()

    changed = replace(version, **change)  # type: ignore[arg-type]

    assert changed.digest != version.digest


def test_unresolved_dtype_is_refused() -> None:
    """``auto`` would give one digest to two different kinds of arithmetic."""
    with pytest.raises(ConfigError, match=r"versions\.chat\.dtype = 'auto'.*float32, bfloat16"):
        replace(make_version(), dtype="auto")


def test_digest_that_is_no_sha256_is_refused() -> None:
    """A short or upper-case digest would never match a stored model."""
    with pytest.raises(ConfigError, match="sha256 in hex"):
        replace(make_version(), model_digest="ABC")


def test_lone_file_is_named_by_its_own_sha256() -> None:
    """Anybody can check a GGUF model with sha256sum."""
    digest = files_digest((FileDigest("model.gguf", "a" * 64),))

    assert digest == "a" * 64


def test_digest_of_several_files_covers_names_and_not_order() -> None:
    """Swapping two files' names is another model; listing them otherwise is not."""
    one, two = FileDigest("a", "1" * 64), FileDigest("b", "2" * 64)

    forward, backward = files_digest((one, two)), files_digest((two, one))

    assert forward == backward
    assert forward != files_digest((FileDigest("a", "2" * 64), FileDigest("b", "1" * 64)))


def test_versions_store_and_resolver_load_no_torch() -> None:
    """The command line lists models and shows digests without torch."""
    modules = ["version", "store", "resolve", "fetch", "convert", "dtype_choice"]
    lines = [f"import failsoft.engine.models.{name}" for name in modules]
    code = "\n".join([*lines, "import sys", "print({'torch', 'transformers'} & set(sys.modules))"])

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"
