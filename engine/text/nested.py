"""Strings inside JSON-like values: found, or changed one by one."""

from collections.abc import Callable, Iterator
from typing import Any


def strings_in(value: object) -> Iterator[str]:
    """Yield every string in *value*, keys of objects included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from strings_in(key)
            yield from strings_in(child)
    elif isinstance(value, list):
        for child in value:
            yield from strings_in(child)


def map_strings(change: Callable[[str], str], value: Any) -> Any:
    """Return *value* with *change* applied to every string, keys of objects but for its own.

    The keys of *value* itself are names that its reader looks for, so they stay.
    """
    if isinstance(value, dict):
        return {key: _deep(change, child) for key, child in value.items()}
    return _deep(change, value)


def _deep(change: Callable[[str], str], value: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _deep(change, child) for key, child in value.items()}
    if isinstance(value, list):
        return [_deep(change, child) for child in value]
    return value
