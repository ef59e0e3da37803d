"""Turns a name into a version: from ``failsoft.toml`` if it names it, else from the catalogue.

A version needs its model's bytes (their digests, and the template inside them), so
resolving one fetches its model into the store. Loads torch only to choose a dtype.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path

from failsoft.config.catalogue import CATALOGUE, CatalogueModel
from failsoft.config.engine import DTYPES
from failsoft.config.file import check_sections, load_toml
from failsoft.config.sources import ModelSource, parse_source
from failsoft.config.versions import (
    VersionSettings,
    find_version,
    parse_versions,
    version_names,
)
from failsoft.engine.models.dtype_choice import choose_dtype
from failsoft.engine.models.fetch import fetch_model
from failsoft.engine.models.generation_defaults import generation_defaults
from failsoft.engine.models.gguf_header import read_gguf_header
from failsoft.engine.models.model_files import GGUF_NAME, read_json
from failsoft.engine.models.store import ModelStore, StoredModel
from failsoft.engine.models.templates import BUILTIN, ChatTemplate
from failsoft.engine.models.version import Version, sorted_items
from failsoft.errors import ConfigError, ModelFileError, ModelSourceError

CONFIG_NAME = "failsoft.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPlan:
    """What a version is made of, before its model's bytes are at hand."""

    name: str
    source: ModelSource
    settings: VersionSettings
    base: Path
    """Folder that relative paths of the settings start from."""
    catalogue: CatalogueModel | None
    """Where the plan comes from, when not from a config file."""


def resolve_version(
    name: str,
    *,
    config_path: Path | None = None,
    dtype: str | None = None,
    store: ModelStore,
    device: str = "cpu",
) -> Version:
    """Return the version called *name*, fetching its model if the store lacks it.

    Args:
        name: A ``[versions.NAME]`` table of the config file, else a catalogue name.
        config_path: The config file; None takes ``failsoft.toml`` of the working
            folder if there is one.
        dtype: Overrides the version's own: auto, float32, bfloat16 or int8.
        store: Where models are kept.
        device: Where it will run; ``auto`` measures there.

    Raises:
        ConfigError: No such name, or a setting is wrong.
        ModelError: Its model cannot be fetched, or is not the promised one.
    """
    plan = plan_version(name, config_path=config_path)
    try:
        stored = fetch_model(plan.source, store=store, sha256=plan.settings.sha256)
    except ModelFileError as exc:
        raise exc.named(name) from exc
    return build_version(plan, stored, dtype=dtype, store=store, device=device)


def plan_version(name: str, *, config_path: Path | None = None) -> VersionPlan:
    """Return what the version called *name* is made of; fetches nothing.

    Raises:
        ConfigError: No such name, or a setting is wrong.
    """
    path = config_path or Path(CONFIG_NAME)
    if config_path is not None and not path.exists():
        raise ConfigError(key="config", value=str(path), allowed="the path of an existing file")
    tables = version_tables(path)
    base = path.absolute().parent
    known = None if name in tables else CATALOGUE.get(name)
    settings = find_version(name, tables)
    if settings is None:
        names = ", ".join(sorted(version_names(tables)))
        raise ConfigError(
            key="version",
            value=name,
            allowed=f"one of {names}, or a [versions.{name}] table in {CONFIG_NAME}",
        )
    source = _source(name, settings, base)
    return VersionPlan(name=name, source=source, settings=settings, base=base, catalogue=known)


def add_command(plan: VersionPlan) -> str:
    """Return the command that fetches, converts or repairs what *plan* needs, run from here."""
    try:
        here = plan_version(plan.name)
    except ConfigError:
        here = None
    if here is not None and _bytes_of(here) == _bytes_of(plan):
        return f"failsoft models add {shlex.quote(plan.name)}"
    # Its config file is not the one of this folder, so its name says nothing here.
    words = ["failsoft", "models", "add", str(plan.source), "--dtype", plan.settings.dtype]
    if plan.settings.sha256 is not None:
        words += ["--sha256", plan.settings.sha256]
    return shlex.join(words)


def _bytes_of(plan: VersionPlan) -> tuple[object, ...]:
    return plan.source, plan.settings.sha256, plan.settings.dtype


def version_tables(path: Path) -> dict[str, VersionSettings]:
    """Return the versions of the config file at *path*; none when there is no file.

    Raises:
        ConfigError: The file is wrong.
    """
    if not path.exists():
        return {}
    document = load_toml(path)
    check_sections(document, path=path)
    return parse_versions(document)


def build_version(
    plan: VersionPlan,
    stored: StoredModel,
    *,
    dtype: str | None,
    store: ModelStore,
    device: str = "cpu",
) -> Version:
    """Return the version that *plan* means for the model *stored*.

    Raises:
        ConfigError: The dtype or the template is wrong.
    """
    settings = plan.settings
    template = _template(plan, stored)
    return Version(
        name=plan.name,
        files=stored.model_files,
        tokenizer_digest=stored.tokenizer_digest,
        model_digest=stored.digest,
        chat_template=None if template is None else template.text,
        stop_strings=() if template is None else template.stop_strings,
        generation_defaults=_defaults(plan, stored),
        system_prompt=settings.system_prompt,
        dtype=resolve_dtype(dtype or settings.dtype, stored, store=store, device=device),
        engine_options=sorted_items(settings.engine_options),
        price=settings.price,
    )


def _source(name: str, settings: VersionSettings, base: Path) -> ModelSource:
    try:
        return parse_source(settings.source, base=base)
    except ModelSourceError as exc:
        raise ConfigError(
            key=f"versions.{name}.source", value=settings.source, allowed=str(exc)
        ) from exc


def resolve_dtype(
    dtype: str, stored: StoredModel, *, store: ModelStore, device: str = "cpu"
) -> str:
    """Return *dtype*, or what it stands for when it is ``auto``.

    Raises:
        ConfigError: It is none of them.
    """
    if dtype not in DTYPES:
        raise ConfigError(key="dtype", value=dtype, allowed="one of " + ", ".join(DTYPES))
    if dtype != "auto":
        return dtype
    return choose_dtype(stored, store=store, device=device).dtype


def _defaults(plan: VersionPlan, stored: StoredModel) -> tuple[tuple[str, float], ...]:
    """Return what the catalogue advises for these bytes, overridden by what the files say."""
    own = generation_defaults(read_json(stored.folder / "generation_config.json"), model=plan.name)
    advised = [m.generation_defaults for m in CATALOGUE.values() if m.sha256 == stored.digest]
    known = advised[0] if advised else ()
    return sorted_items({**dict(known), **dict(own)})


def _template(plan: VersionPlan, stored: StoredModel) -> ChatTemplate | None:
    named = plan.settings.template
    extra = tuple(plan.settings.stop)
    if named is None:
        own = _own_template(stored)
        return None if own is None else ChatTemplate(own, extra)
    if named in BUILTIN:
        builtin = BUILTIN[named]
        return ChatTemplate(builtin.text, tuple(dict.fromkeys((*builtin.stop_strings, *extra))))
    path = plan.base / Path(named).expanduser()
    try:
        return ChatTemplate(path.read_text("utf-8"), extra)
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(
            key=f"versions.{plan.name}.template",
            value=named,
            allowed=f"one of {', '.join(BUILTIN)}, or the path of a Jinja file in UTF-8 ({exc})",
        ) from exc


def _own_template(stored: StoredModel) -> str | None:
    if stored.is_gguf:
        return read_gguf_header(stored.folder / GGUF_NAME).chat_template
    path = stored.folder / "chat_template.jinja"
    if path.exists():
        return path.read_text("utf-8")
    for name in ("chat_template.json", "tokenizer_config.json"):
        own = read_json(stored.folder / name).get("chat_template")
        if isinstance(own, list):  # several named templates; the unnamed use is "default"
            own = {item.get("name"): item.get("template") for item in own}.get("default")
        if isinstance(own, str) and own:
            return own
    return None
