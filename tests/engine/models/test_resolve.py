"""From a name to a version: config file first, then the catalogue."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from failsoft.config.catalogue import CATALOGUE
from failsoft.engine.models.resolve import plan_version, resolve_version
from failsoft.engine.models.store import ModelStore
from failsoft.engine.models.templates import PLAIN
from failsoft.errors import ConfigError, ModelFileError
from failsoft.records import TokenPrice


def write_config(folder: Path, text: str) -> Path:
    """Write failsoft.toml."""
    path = folder / "failsoft.toml"
    path.write_text(text)
    return path


def test_full_table_becomes_a_version(store: ModelStore, tmp_path: Path, tiny_gguf: Path) -> None:
    """Every key of the table shows in the version; the path is relative to the file."""
    (tmp_path / "x.gguf").write_bytes(tiny_gguf.read_bytes())
    (tmp_path / "chat.jinja").write_text("{{ messages[0]['content'] }}")
    path = write_config(
        tmp_path,
        """
        [versions.tiny]
        source = "file:x.gguf"
        dtype = "bfloat16"
        template = "chat.jinja"
        stop = ["###"]
        system_prompt = "Be brief."
        price = {input_per_mtok = 1, output_per_mtok = 2.5}
        [versions.tiny.engine]
        max_model_len = 64
        max_running = 4
        """,
    )

    version = resolve_version("tiny", config_path=path, store=store)

    assert version.dtype == "bfloat16"
    assert version.chat_template == "{{ messages[0]['content'] }}"
    assert version.stop_strings == ("###",)
    assert version.system_prompt == "Be brief."
    assert version.price == TokenPrice(input_per_mtok=1.0, output_per_mtok=2.5)
    assert version.engine_options == (("max_model_len", 64), ("max_running", 4))
    assert version.files[0].path == "model.gguf"


def test_models_own_template_is_the_default(
    store: ModelStore, tmp_path: Path, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read from the GGUF header; the working folder's failsoft.toml is found."""
    write_config(tmp_path, f"[versions.tiny]\nsource = 'file:{tiny_gguf}'")
    monkeypatch.chdir(tmp_path)

    version = resolve_version("tiny", dtype="float32", store=store)

    assert version.chat_template is not None
    assert version.chat_template.startswith("{% for m in messages %}<|im_start|>")
    assert version.stop_strings == ()


def test_model_without_a_template_cannot_chat(
    store: ModelStore, tmp_path: Path, tiny_folder: Path
) -> None:
    """None, not a guess; ``plain`` must be asked for."""
    table = f"[versions.tiny]\nsource = 'file:{tiny_folder}'\n"
    bare = resolve_version(
        "tiny", config_path=write_config(tmp_path, table), dtype="float32", store=store
    )
    table += "template = 'plain'\nstop = ['END']\n"
    plain = resolve_version(
        "tiny", config_path=write_config(tmp_path, table), dtype="float32", store=store
    )

    assert bare.chat_template is None
    assert plain.chat_template == PLAIN.text
    assert plain.stop_strings == ("\nUser:", "END")


def test_misspelt_section_is_refused(store: ModelStore, tmp_path: Path) -> None:
    """Without the check the name would only be unknown."""
    path = write_config(tmp_path, "[version.tiny]\nsource = 'file:x'\n")

    with pytest.raises(ConfigError, match=r"did you mean \[versions\]"):
        resolve_version("tiny", config_path=path, store=store)


def test_wrong_digest_in_the_config_is_refused(
    store: ModelStore, tmp_path: Path, tiny_gguf: Path
) -> None:
    """The table's sha256 holds also when the file is in the store already."""
    table = f"[versions.tiny]\nsource = 'file:{tiny_gguf}'\n"
    resolve_version("tiny", config_path=write_config(tmp_path, table), dtype="float32", store=store)
    path = write_config(tmp_path, table + f"sha256 = '{'0' * 64}'\n")

    with pytest.raises(ModelFileError):
        resolve_version("tiny", config_path=path, dtype="float32", store=store)


@pytest.mark.parametrize(
    ("table", "key", "hint"),
    [
        ("source = 'hf:o/n@main'", "versions.tiny.source", "hf:o/n@<40-hex commit>"),
        ("source = 'pypi:d:x'", "versions.tiny.source", "pypi:d==VERSION:x"),
        ("source = ['pypi:d==1:x', 'pypi:e:y']", "versions.tiny.source", "pypi:e==VERSION:y"),
    ],
)
def test_floating_source_names_its_key_and_the_line_to_write(
    tmp_path: Path, table: str, key: str, hint: str
) -> None:
    """A config error, found before anything is fetched."""
    path = write_config(tmp_path, f"[versions.tiny]\n{table}")

    with pytest.raises(ConfigError) as caught:
        plan_version("tiny", config_path=path)

    assert caught.value.key == key
    assert hint in str(caught.value)


def test_absent_template_file_is_a_config_error(
    store: ModelStore, tmp_path: Path, tiny_gguf: Path
) -> None:
    """The built-in names are in the message."""
    table = f"[versions.tiny]\nsource = 'file:{tiny_gguf}'\ntemplate = 'plaim'"

    with pytest.raises(ConfigError, match=r"versions\.tiny\.template = 'plaim'.*plain"):
        resolve_version(
            "tiny", config_path=write_config(tmp_path, table), dtype="float32", store=store
        )


def test_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    """Names of the file and of the catalogue."""
    path = write_config(tmp_path, "[versions.mine]\nsource = 'file:x.gguf'")

    with pytest.raises(ConfigError, match=r"gemma-3-270m, mine, smollm2-135m-instruct"):
        plan_version("nope", config_path=path)


def test_unknown_dtype_is_a_config_error(
    store: ModelStore, tmp_path: Path, tiny_gguf: Path
) -> None:
    """An override is checked like the file."""
    path = write_config(tmp_path, f"[versions.tiny]\nsource = 'file:{tiny_gguf}'")

    with pytest.raises(ConfigError, match=r"dtype = 'float16'.*auto, float32, bfloat16"):
        resolve_version("tiny", config_path=path, dtype="float16", store=store)


def test_named_config_that_is_absent_is_an_error(tmp_path: Path) -> None:
    """Only the working folder's file is optional."""
    with pytest.raises(ConfigError, match="existing file"):
        plan_version("smollm2-135m-instruct", config_path=tmp_path / "absent.toml")


def test_config_may_redefine_a_catalogue_name(tmp_path: Path) -> None:
    """The user's own file wins."""
    table = "[versions.gemma-3-270m]\nsource = 'file:x.gguf'"

    plan = plan_version("gemma-3-270m", config_path=write_config(tmp_path, table))

    assert str(plan.source) == f"file:{tmp_path}/x.gguf"
    assert plan.catalogue is None


def test_every_catalogue_model_is_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each entry plans without a config file, with a digest and a licence."""
    monkeypatch.chdir(tmp_path)

    plans = [plan_version(name) for name in CATALOGUE]

    assert len(plans) >= 2
    assert all(plan.settings.sha256 and plan.catalogue and plan.catalogue.licence for plan in plans)


def test_what_the_catalogue_advises_goes_with_the_bytes(
    store: ModelStore, tmp_path: Path, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version of one's own once lost the sampling that the model's makers recommend."""
    known = replace(
        CATALOGUE["smollm2-135m-instruct"],
        sha256=hashlib.sha256(tiny_gguf.read_bytes()).hexdigest(),
    )
    monkeypatch.setitem(CATALOGUE, known.name, known)
    path = write_config(tmp_path, f"[versions.mine]\nsource = 'file:{tiny_gguf}'")

    version = resolve_version("mine", config_path=path, dtype="float32", store=store)

    assert version.generation_defaults == known.generation_defaults
