"""What a setting may be: the rule and its words, written once beside the field.

A field annotated ``Annotated[float, between(0.001, 3600)]`` is checked by
`check_fields` when code builds the dataclass and by pydantic when a file does
(`failsoft.config.schema`); both refuse it with the same words.
"""

import dataclasses
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from failsoft.errors import ConfigError

_PLAIN_WORDS = {bool: "true or false", int: "an integer", float: "a number", str: "text"}


@dataclass(frozen=True, slots=True)
class Allowed:
    """A rule for one value and how to say it to a user."""

    words: str
    test: Callable[[Any], bool]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Let pydantic apply the rule after its own type check."""
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self._validate, handler(source))

    def _validate(self, value: Any) -> Any:
        if not self.test(value):
            raise ValueError(self.words)
        return value


def between(low: float, high: float, *, what: str = "a number") -> Allowed:
    """Return the rule for a finite number in *low*..*high*, both ends included."""
    return Allowed(
        f"{what} in {low:.15g}..{high:.15g}",
        lambda value: math.isfinite(value) and low <= value <= high,
    )


def zero_or_between(low: float, high: float, *, what: str = "a number") -> Allowed:
    """Return the rule for 0, or a finite number in *low*..*high*, both ends included."""
    some = between(low, high, what=what)
    return Allowed(f"0, or {some.words}", lambda value: value == 0 or some.test(value))


def matching(pattern: str, words: str) -> Allowed:
    """Return the rule for text that matches *pattern* as a whole."""
    compiled = re.compile(pattern)
    return Allowed(words, lambda value: compiled.fullmatch(value) is not None)


MASK = "***"
_SECRET_KEY = re.compile(r"(?i)_env$|key|token|secret|passw|auth|credential")

Name = Annotated[
    str,
    matching(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
        "1..64 letters, digits, dots, dashes or underscores, a letter or digit first",
    ),
]
EnvName = Annotated[
    str, matching(r"[A-Za-z_][A-Za-z0-9_]{0,127}", "the name of an environment variable")
]


def shown(key: str, value: object) -> object:
    """Return *value* as an error may print it: what could be a secret is masked.

    A bad ``*_env`` value is often the secret itself, pasted; so is an unknown
    key's that is named like one. A URL loses its user part and its query.
    """
    if isinstance(value, str) and _SECRET_KEY.search(key):
        return MASK
    if isinstance(value, str) and "://" in value:
        return re.sub(r"\?.*", f"?{MASK}", re.sub(r"://.*@", f"://{MASK}@", value))
    return value


def _base(hint: Any) -> Any:
    """Return *hint* without ``| None``."""
    parts = [part for part in get_args(hint) if part is not type(None)]
    if type(None) in get_args(hint) and len(parts) == 1:
        return parts[0]
    return hint


def allowed_words(hint: Any) -> str:
    """Return what a field annotated *hint* may be, in words for a user."""
    hint = _base(hint)
    if get_origin(hint) is Annotated:
        rules = [item.words for item in get_args(hint)[1:] if isinstance(item, Allowed)]
        return " and ".join(rules) or allowed_words(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(f'"{value}"' for value in get_args(hint))
    if get_origin(hint) is tuple:
        return "a list of " + allowed_words(get_args(hint)[0])
    return _PLAIN_WORDS.get(hint, "a table")


@cache
def field_hints(cls: Any) -> dict[str, Any]:
    """Return the annotations of a dataclass's fields, rules included."""
    hints = get_type_hints(cls, include_extras=True)
    return {item.name: hints[item.name] for item in dataclasses.fields(cls)}


def fits(hint: Any, value: object) -> bool:
    """Return whether *value* keeps the rules of a field annotated *hint*; types are not checked."""
    hint = _base(hint)
    if get_origin(hint) is Annotated:
        return all(rule.test(value) for rule in get_args(hint)[1:] if isinstance(rule, Allowed))
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    return True


def check_fields(config: Any) -> None:
    """Check every field of a settings dataclass; for its ``__post_init__``.

    Raises:
        ConfigError: A value is out of its range; the error names the field.
    """
    cls: Any = type(config)
    for name, hint in field_hints(cls).items():
        value = getattr(config, name)
        if value is not None and not fits(hint, value):
            raise ConfigError(key=name, value=shown(name, value), allowed=allowed_words(hint))
