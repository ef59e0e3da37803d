"""``failsoft.toml`` into `Settings`: every table read, every reference resolved.

All problems are collected, so that one look at the output mends the file. The
file is TOML 1.0; a relative SQLite path in it counts from the file's folder, in the
built-in file from failsoft's own.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from failsoft.config.allowed import EnvName, Name, allowed_words, fits, shown
from failsoft.config.file import SECTIONS, load_toml
from failsoft.config.home import home_folder
from failsoft.config.settings import (
    CACHE_RUNG,
    BreakerConfig,
    CacheConfig,
    EndpointConfig,
    FingerprintConfig,
    LadderConfig,
    RetryConfig,
    Settings,
    StoreConfig,
    TimeoutConfig,
)
from failsoft.config.tables import Problems, as_table, did_you_mean, read_table
from failsoft.config.versions import read_price, read_versions, version_names
from failsoft.errors import ConfigError

DEFAULT_FILE = Path("failsoft.toml")
BUILT_IN_FILE = Path(__file__).with_name("default.toml")
"""The settings of who has no file; its store lies in failsoft's own folder."""

_LADDER_PARTS: dict[str, type] = {
    "retry": RetryConfig,
    "timeouts": TimeoutConfig,
    "breaker": BreakerConfig,
    "cache": CacheConfig,
}
_SQLITE = "sqlite:///"


class Checked(NamedTuple):
    """What reading a file found."""

    settings: Settings | None
    """None when there is a problem."""
    problems: Problems


def settings_file(path: Path | None) -> Path:
    """Return *path*, else ``failsoft.toml`` of the working folder, else the built-in file."""
    if path is not None:
        return path
    return DEFAULT_FILE if DEFAULT_FILE.exists() else BUILT_IN_FILE


def load_settings(path: Path) -> Settings:
    """Read *path*.

    Raises:
        ConfigError: The file cannot be read, or its first problem; a note counts the others.
    """
    settings, problems = check_settings(path)
    if settings is None:
        if len(problems) > 1:
            problems[0].add_note(f"{len(problems) - 1} more: run `failsoft config check {path}`")
        raise problems[0]
    return settings


def check_settings(path: Path) -> Checked:
    """Read *path* and collect every problem; never raises ConfigError itself."""
    try:
        raw = load_toml(path)
    except ConfigError as exc:
        return Checked(None, [exc])
    checked = read_settings(raw)
    if checked.settings is None:
        return checked
    is_built_in = path.resolve() == BUILT_IN_FILE.resolve()
    folder = home_folder(os.environ) if is_built_in else path.resolve().parent
    store = _beside(checked.settings.store, folder)
    return Checked(replace(checked.settings, store=store), checked.problems)


def _beside(store: StoreConfig, folder: Path) -> StoreConfig:
    """Return *store* with a relative SQLite path made absolute from *folder*."""
    if not store.is_sqlite:
        return store
    return replace(store, url=f"{_SQLITE}{folder / store.url.removeprefix(_SQLITE)}")


def read_settings(raw: Mapping[str, Any]) -> Checked:
    """Turn a parsed file into settings, or into the list of all its problems."""
    problems: Problems = []
    for section in raw:
        if section not in SECTIONS:
            allowed = f"unknown section; {did_you_mean(section, SECTIONS)}"
            value = shown(section, raw[section]) if not isinstance(raw[section], dict) else "[…]"
            problems.append(ConfigError(key=section, value=value, allowed=allowed))
    store = read_table(StoreConfig, raw.get("store", {}), at="store", problems=problems)
    versions = read_versions(raw.get("versions", {}), problems)
    pins = _read_names(raw.get("pins", {}), at="pins", hint=Name, problems=problems)
    named = as_table(raw.get("versions", {}), at="versions", problems=[])
    known = dict.fromkeys(version_names(named))
    _refer(pins, known, at="pins", what="version or catalogue model", problems=problems)
    slots = as_table(raw.get("pins", {}), at="pins", problems=[])
    endpoints = _read_endpoints(raw.get("endpoints", {}), slots, problems)
    rungs = {*as_table(raw.get("endpoints", {}), at="endpoints", problems=[]), CACHE_RUNG}
    ladders = _read_ladders(raw.get("ladders", {}), rungs, problems)
    keys = _read_names(raw.get("keys", {}), at="keys", hint=EnvName, problems=problems)
    fingerprint = read_table(
        FingerprintConfig, raw.get("fingerprint", {}), at="fingerprint", problems=problems
    )
    if problems or store is None or fingerprint is None:
        return Checked(None, problems)
    settings = Settings(
        store=store,
        versions=versions,
        pins=pins,
        endpoints=endpoints,
        ladders=ladders,
        keys=keys,
        fingerprint=fingerprint,
    )
    return Checked(settings, problems)


def _read_names(raw: object, *, at: str, hint: Any, problems: Problems) -> dict[str, str]:
    """Read a table of name → text; *hint* says what the text may be."""
    names: dict[str, str] = {}
    for name, value in as_table(raw, at=at, problems=problems).items():
        if not fits(Name, name):
            problems.append(ConfigError(key=at, value=name, allowed=allowed_words(Name)))
        elif not isinstance(value, str) or not fits(hint, value):
            masked = shown(at, value)
            problems.append(
                ConfigError(key=f"{at}.{name}", value=masked, allowed=allowed_words(hint))
            )
        else:
            names[name] = value
    return names


def _refer(
    names: Mapping[str, str],
    known: Mapping[str, object],
    *,
    at: str,
    what: str,
    problems: Problems,
) -> None:
    """Add a problem for each name whose target is not in *known*."""
    for name, target in names.items():
        if target not in known:
            allowed = f"no such {what}; {did_you_mean(target, known)}"
            problems.append(ConfigError(key=f"{at}.{name}", value=target, allowed=allowed))


def _read_endpoints(
    raw: object, slots: Mapping[str, object], problems: Problems
) -> dict[str, EndpointConfig]:
    endpoints: dict[str, EndpointConfig] = {}
    for name, table in as_table(raw, at="endpoints", problems=problems).items():
        at = f"endpoints.{name}"
        if name == CACHE_RUNG:
            allowed = "another name: the rung called cache is the reply cache"
            problems.append(ConfigError(key=at, value=name, allowed=allowed))
            continue
        parts = {"name": name, **read_price(table, at=at, problems=problems)}
        endpoint = read_table(EndpointConfig, table, at=at, problems=problems, parts=parts)
        if endpoint is None:
            continue
        endpoints[name] = endpoint
        if endpoint.pin is not None:
            target = {"pin": endpoint.pin}
            _refer(target, slots, at=at, what="slot in [pins]", problems=problems)
    return endpoints


def _read_ladders(raw: object, rungs: set[str], problems: Problems) -> dict[str, LadderConfig]:
    ladders: dict[str, LadderConfig] = {}
    known = dict.fromkeys(rungs)
    for name, table in as_table(raw, at="ladders", problems=problems).items():
        at = f"ladders.{name}"
        given = table if isinstance(table, dict) else {}
        parts: dict[str, object] = {"name": name}
        for part, cls in _LADDER_PARTS.items():
            subtable = given.get(part, {})
            parts[part] = read_table(cls, subtable, at=f"{at}.{part}", problems=problems)
        ladder = read_table(LadderConfig, table, at=at, problems=problems, parts=parts)
        if ladder is not None:
            ladders[name] = ladder
        named = given.get("rungs")
        for rung in named if isinstance(named, list) else []:
            if isinstance(rung, str):
                _refer({"rungs": rung}, known, at=at, what="endpoint", problems=problems)
    return ladders
