"""``[versions.NAME]`` tables of ``failsoft.toml``: what a user writes of a version.

Knows nothing of stores and models; a source's form is checked where it is parsed.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from failsoft.config.engine import EngineConfig
from failsoft.errors import ConfigError

_NOT_OPTIONS = frozenset({"dtype", "device"})
"""Engine settings that are a version's own key, or a machine's, instead."""


class PriceSettings(BaseModel):
    """``price = {input_per_mtok = …, output_per_mtok = …}``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    input_per_mtok: float = Field(ge=0, allow_inf_nan=False)
    output_per_mtok: float = Field(ge=0, allow_inf_nan=False)


class VersionSettings(BaseModel):
    """One version as a user writes it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    source: str | list[str]
    """Where the model comes from; a list names the parts of one file in order."""
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """Digest of the GGUF file, or of a folder's files as ``failsoft models show`` prints it."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    template: Annotated[str, Field(min_length=1)] | None = None
    """``plain``, or the path of a Jinja file; None takes the model's own."""
    stop: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    """Strings that end a chat answer, besides those of a built-in template."""
    system_prompt: str | None = None
    """What chats without a system message of their own begin with."""
    price: PriceSettings | None = None
    engine: dict[str, Any] = Field(default_factory=dict)
    """Fields of ``EngineConfig``, but for dtype."""


def parse_versions(document: Mapping[str, Any]) -> dict[str, VersionSettings]:
    """Return the versions of a config file by name.

    Raises:
        ConfigError: A key is unknown or a value is not allowed; it names the dotted key.
    """
    tables = document.get("versions", {})
    if not isinstance(tables, dict):
        raise ConfigError(key="versions", value=tables, allowed="[versions.NAME] tables")
    return {name: _parse_version(name, table) for name, table in tables.items()}


def _parse_version(name: str, table: object) -> VersionSettings:
    key = f"versions.{name}"
    if not isinstance(table, dict):
        raise ConfigError(key=key, value=table, allowed=f"a [{key}] table")
    try:
        settings = VersionSettings.model_validate(table)
    except ValidationError as exc:
        raise _config_error(key, table, exc) from exc
    _check_engine_options(f"{key}.engine", settings.engine)
    return settings


def _check_engine_options(key: str, options: Mapping[str, Any]) -> None:
    kinds = get_type_hints(EngineConfig)
    allowed = sorted(kinds.keys() - _NOT_OPTIONS)
    for name, value in options.items():
        if name not in allowed:
            raise ConfigError(
                key=f"{key}.{name}", value=value, allowed=f"no such key, only {', '.join(allowed)}"
            )
        try:
            TypeAdapter(kinds[name]).validate_python(value, strict=True)
        except ValidationError as exc:
            raise ConfigError(
                key=f"{key}.{name}", value=value, allowed=exc.errors()[0]["msg"]
            ) from exc
    try:
        EngineConfig(**options)
    except ConfigError as exc:
        raise ConfigError(key=f"{key}.{exc.key}", value=exc.value, allowed=exc.allowed) from exc


def _config_error(key: str, table: Mapping[str, Any], error: ValidationError) -> ConfigError:
    first = error.errors(include_url=False)[0]
    place = _place_in(table, first["loc"])
    dotted = ".".join([key, *map(str, place)])
    if first["type"] == "extra_forbidden":
        known = PriceSettings if place[0] == "price" else VersionSettings
        names = ", ".join(sorted(known.model_fields))
        return ConfigError(key=dotted, value=first["input"], allowed=f"no such key, only {names}")
    if first["type"] == "missing":
        name = first["loc"][-1]
        example = '"…"' if name == "source" else "…"
        return ConfigError(
            key=f"{dotted}.{name}",
            value=None,
            allowed="it must be set",
            message=f"{dotted} needs {name} = {example}",
        )
    if dotted == f"{key}.sha256":
        return ConfigError(key=dotted, value=first["input"], allowed="64 lowercase hex digits")
    return ConfigError(key=dotted, value=first["input"], allowed=first["msg"])


def _place_in(table: Any, location: tuple[int | str, ...]) -> list[int | str]:
    # pydantic adds union members to the place; only what the table really holds is the user's.
    place: list[int | str] = []
    for part in location:
        is_index = isinstance(table, list) and isinstance(part, int)
        if not is_index and not (isinstance(table, dict) and part in table):
            break
        place.append(part)
        table = table[part]
    return place
