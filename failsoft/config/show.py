"""Effective settings as plain tables, and those as TOML that reads back the same."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from failsoft.config.settings import Settings


def as_tables(settings: Settings) -> dict[str, Any]:
    """Return *settings* as the file's own tables, defaults filled in, unset keys None.

    Names of environment variables are shown; what they hold is never read.
    """
    tables = asdict(settings)
    for section in ("endpoints", "ladders"):
        for table in tables[section].values():
            del table["name"]
    return tables


def as_toml(tables: Mapping[str, Any]) -> str:
    """Return *tables* as TOML; keys that are None are left out, as TOML has no null."""
    return "\n\n".join(_blocks("", tables)) + "\n"


def _blocks(at: str, table: Mapping[str, Any]) -> Iterator[str]:
    """Yield one ``[header]`` block for *table*'s own values, then its subtables' blocks."""
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    lines = [f"{_key(key)} = {_value(value)}" for key, value in table.items() if _is_own(value)]
    if at and (lines or not inner):
        yield "\n".join([f"[{at}]", *lines])
    for key, value in inner.items():
        yield from _blocks(f"{at}.{_key(key)}" if at else _key(key), value)


def _is_own(value: object) -> bool:
    return value is not None and not isinstance(value, Mapping)


def _key(key: str) -> str:
    is_bare = key.isascii() and key.replace("-", "a").replace("_", "a").isalnum()
    return key if is_bare else json.dumps(key)


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return str(value)  # a date or a time: TOML writes them as Python does
