"""One TOML table into one settings dataclass, every problem in it collected.

The pydantic model is made from the dataclass, so a field's type, range and
words are written once. Strict: ``"3"`` is not 3 and 1 is not true.
"""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypeVar, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from failsoft.config.allowed import allowed_words, field_hints, shown
from failsoft.errors import ConfigError

T = TypeVar("T")

Problems = list[ConfigError]
"""What is wrong with a file, in the order it was found."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean "x"? known: …`` for a name that is not in *known*."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    hint = f'did you mean "{close[0]}"? ' if close else ""
    return f"{hint}known: {', '.join(names) or 'none'}"


@cache
def _model(cls: Any, left_out: frozenset[str]) -> type[BaseModel]:
    """Return a strict pydantic model with *cls*'s fields but those *left_out*."""
    hints = field_hints(cls)
    fields: dict[str, Any] = {}
    for item in dataclasses.fields(cls):
        if item.name in left_out:
            continue
        default = ... if item.default is dataclasses.MISSING else item.default
        # TOML has lists where a frozen object has tuples.
        is_list = get_origin(hints[item.name]) is tuple
        field = Field(default, strict=False) if is_list else default
        fields[item.name] = (hints[item.name], field)
    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    return create_model(cls.__name__, __config__=config, **fields)


def _problem(error: Mapping[str, Any], *, at: str, cls: type, known: Iterable[str]) -> ConfigError:
    """Say one pydantic error in the words of the settings."""
    name = str(error["loc"][0])
    key = f"{at}.{name}"
    if error["type"] == "extra_forbidden":
        allowed = f"unknown key; {did_you_mean(name, known)}"
        return ConfigError(key=key, value=shown(name, error["input"]), allowed=allowed)
    words = allowed_words(field_hints(cls)[name])
    if error["type"] == "missing":
        return ConfigError(key=key, value=None, allowed=f"it is required: {words}")
    return ConfigError(key=key, value=shown(name, error["input"]), allowed=words)


def as_table(raw: object, *, at: str, problems: Problems) -> dict[str, Any]:
    """Return *raw* as a table, or an empty one and a problem."""
    if isinstance(raw, dict):
        return raw
    problems.append(ConfigError(key=at, value=shown(at, raw), allowed=f"a table: [{at}]"))
    return {}


def read_table(
    cls: type[T],
    raw: object,
    *,
    at: str,
    problems: Problems,
    parts: Mapping[str, object] | None = None,
) -> T | None:
    """Build *cls* from a TOML table.

    Args:
        cls: A settings dataclass.
        raw: What the file has there.
        at: The table's dotted name, for errors.
        problems: Gets every problem of the table.
        parts: Fields that were read apart (subtables, the table's own name).

    Returns:
        The object, or None when the table has a problem.
    """
    parts = parts or {}
    found = len(problems)
    table = as_table(raw, at=at, problems=problems)
    if len(problems) > found:
        return None
    own = {key: value for key, value in table.items() if key == "name" or key not in parts}
    shape: Any = cls
    model = _model(shape, frozenset(parts))
    known = set(model.model_fields) | (set(parts) - {"name"})
    try:
        values = model.model_validate(own)
        if None in parts.values():
            return None
        fields = {name: getattr(values, name) for name in model.model_fields}
        return cls(**fields, **parts)
    except ValidationError as exc:
        problems += [_problem(error, at=at, cls=cls, known=known) for error in exc.errors()]
    except ConfigError as exc:
        problems.append(ConfigError(key=f"{at}.{exc.key}", value=exc.value, allowed=exc.allowed))
    return None
