"""``[versions.NAME]`` tables of ``failsoft.toml``, and the catalogue's names beside them.

The one parser of both. Knows nothing of stores and of a model's bytes; a source that
floats is refused here, before anything is fetched.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import TypeAdapter, ValidationError

from failsoft.config.allowed import Allowed, Name, allowed_words, check_fields, fits, matching
from failsoft.config.catalogue import CATALOGUE
from failsoft.config.engine import EngineConfig
from failsoft.config.price import TokenPrice
from failsoft.config.sources import FORMS, parse_source
from failsoft.config.tables import Problems, as_table, did_you_mean, read_table
from failsoft.errors import ConfigError, ModelError

_NOT_OPTIONS = frozenset({"dtype", "device"})
"""Engine settings that are a version's own key, or a machine's, instead."""

Sha256 = Annotated[str, matching(r"[0-9a-f]{64}", "64 lower-case hex digits")]
Source = Annotated[str | list[str], Allowed("a source line, or a list of them", bool)]
SomeText = Annotated[str, matching(r"(?s).+", "text of at least 1 character")]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSettings:
    """One version as a user writes it.

    Raises:
        ConfigError: A value is out of range; the error names the key.
    """

    source: Source
    """Where the model comes from; a list names the parts of one file in order."""
    sha256: Sha256 | None = None
    """Digest of the GGUF file, or of a folder's files as ``failsoft models show`` prints it."""
    dtype: Literal["auto", "float32", "bfloat16", "int8"] = "auto"
    template: SomeText | None = None
    """``plain``, or the path of a Jinja file; None takes the model's own."""
    stop: tuple[SomeText, ...] = ()
    """Strings that end a chat answer, besides those of a built-in template."""
    system_prompt: str | None = None
    """What chats without a system message of their own begin with."""
    price: TokenPrice | None = None
    engine: Mapping[str, Any] | None = None
    """Fields of ``EngineConfig``, but for dtype."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def engine_options(self) -> Mapping[str, Any]:
        """What the version asks of the engine; empty when it asks nothing."""
        return self.engine or {}


def version_names(tables: Mapping[str, object]) -> list[str]:
    """Return every name that a pin or a command may use: *tables*' own, then the catalogue's."""
    return list(dict.fromkeys([*tables, *CATALOGUE]))


def find_version(name: str, tables: Mapping[str, VersionSettings]) -> VersionSettings | None:
    """Return the version called *name*: a table, else a catalogue model; None when it is neither.

    >>> find_version("smollm2-135m-instruct", {}).dtype
    'auto'
    """
    if name in tables:
        return tables[name]
    known = CATALOGUE.get(name)
    if known is None:
        return None
    return VersionSettings(source=known.source, sha256=known.sha256, template=known.template)


def parse_versions(document: Mapping[str, Any]) -> dict[str, VersionSettings]:
    """Return the versions of a config file by name.

    Raises:
        ConfigError: The first key that is unknown or value that is not allowed.
    """
    problems: Problems = []
    versions = read_versions(document.get("versions", {}), problems)
    if problems:
        raise problems[0]
    return versions


def read_versions(raw: object, problems: Problems) -> dict[str, VersionSettings]:
    """Return the versions of a file's ``versions`` table by name; *problems* gets what is wrong."""
    versions: dict[str, VersionSettings] = {}
    for name, table in as_table(raw, at="versions", problems=problems).items():
        if not fits(Name, name):
            problems.append(ConfigError(key="versions", value=name, allowed=allowed_words(Name)))
            continue
        version = _read_version(f"versions.{name}", table, problems)
        if version is not None:
            versions[name] = version
    return versions


def read_price(table: object, *, at: str, problems: Problems) -> dict[str, TokenPrice | None]:
    """Return ``{"price": …}`` when *table* has one, else ``{}``; None stands for a bad one."""
    if not isinstance(table, dict) or "price" not in table:
        return {}
    return {"price": read_table(TokenPrice, table["price"], at=f"{at}.price", problems=problems)}


def _read_version(at: str, table: object, problems: Problems) -> VersionSettings | None:
    parts: dict[str, object] = dict(read_price(table, at=at, problems=problems))
    if isinstance(table, dict) and "engine" in table:
        parts["engine"] = _read_options(table["engine"], at=f"{at}.engine", problems=problems)
    version = read_table(VersionSettings, table, at=at, problems=problems, parts=parts)
    if version is not None and (problem := _source_problem(at, version.source)) is not None:
        problems.append(problem)
        return None
    return version


def _source_problem(at: str, source: str | list[str]) -> ConfigError | None:
    try:
        # Only its form is looked at: the folder that a path starts from does not matter.
        parse_source(source, base=Path("/"))
    except ModelError as exc:
        return ConfigError(key=f"{at}.source", value=source, allowed=f"{FORMS} ({exc})")
    return None


def _read_options(raw: object, *, at: str, problems: Problems) -> dict[str, Any] | None:
    """Return a version's engine options; None when one is wrong."""
    found = len(problems)
    options = as_table(raw, at=at, problems=problems)
    for name, value in options.items():
        problem = _option_problem(f"{at}.{name}", name, value)
        if problem is not None:
            problems.append(problem)
    if len(problems) == found:
        try:
            EngineConfig(**options)
        except ConfigError as exc:
            problems.append(
                ConfigError(key=f"{at}.{exc.key}", value=exc.value, allowed=exc.allowed)
            )
    return options if len(problems) == found else None


def _option_problem(key: str, name: str, value: object) -> ConfigError | None:
    kinds = get_type_hints(EngineConfig)
    known = kinds.keys() - _NOT_OPTIONS
    if name not in known:
        allowed = f"unknown key; {did_you_mean(name, known)}"
        return ConfigError(key=key, value=value, allowed=allowed)
    try:
        TypeAdapter(kinds[name]).validate_python(value, strict=True)
    except ValidationError as exc:
        return ConfigError(key=key, value=value, allowed=exc.errors()[0]["msg"])
    return None
