"""A `Standing` as one JSON document: what ``failsoft status --json`` and ``/api/now`` give.

A part that could not be measured is ``{"unknown": reason}``. Knows nothing of HTTP.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from failsoft.dashboard.standing import Standing, Unknown, UnknownWindow, Window

SCHEMA = 1


def to_document(standing: Standing) -> dict[str, Any]:
    """Return *standing* in JSON's types; every key is there whatever is known."""
    return {"schema": SCHEMA, **_plain(standing)}


def _plain(value: Any) -> Any:
    if isinstance(value, Unknown):
        return {"unknown": value.reason}
    if isinstance(value, UnknownWindow):
        return {"window_s": value.window_s, "unknown": value.reason}
    if isinstance(value, Window):
        return _window(value)
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _window(window: Window) -> dict[str, Any]:
    """Return a window with its shares: null without calls, never 0."""
    return {
        "window_s": window.window_s,
        "num_calls": window.num_calls,
        "replies": dict(window.replies),
        "shares": {rung: window.share(rung) for rung in window.replies},
        "num_failed": window.num_failed,
        "failed_share": window.failed_share,
        "num_rejected": window.num_rejected,
        "num_cancelled": window.num_cancelled,
    }
