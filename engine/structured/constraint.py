"""What a reply must look like, as text that llguidance compiles.

A constraint holds one text or two: the narrowed one is tried first, and the plain one where
narrowing made it impossible. Knows nothing of tokens.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llguidance import LLMatcher, regex_to_lark
from llguidance.gbnf_to_lark import any_to_lark

from failsoft.engine.structured.finite import endless_place
from failsoft.engine.structured.json_schema import (
    MAX_OPTIONAL,
    MAX_SCHEMA_CHARS,
    MAX_SCHEMA_DEPTH,
    any_object,
    narrowed,
    num_optional,
    size_of,
    with_spacing,
)
from failsoft.engine.text.nesting import depth_of
from failsoft.errors import InvalidRequestError

MAX_CHOICES = 10_000
_REGEX_WORDS = re.compile(r"[\\.+*?()|\[\]{}^$#&\-~/]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """Texts of one grammar, the preferred first, and the field that asked for it."""

    texts: tuple[str, ...]
    param: str
    parts: tuple["Constraint", ...] = ()
    """What it is made of: whichever cannot be followed by itself is to blame."""


def json_object(param: str) -> Constraint:
    """Return the constraint "any JSON object"."""
    return Constraint(texts=(_schema_text(any_object(), param),), param=param)


def json_schema(schema: object, param: str) -> Constraint:
    """Return the constraint "JSON that *schema* allows".

    Raises:
        InvalidRequestError: It is no JSON schema, or longer or deeper than is compiled here.
    """
    checked = check_schema(schema, param)
    texts = (_schema_text(narrowed(checked), param), _schema_text(checked, param))
    return Constraint(texts=texts, param=param)


def regex(pattern: str, param: str) -> Constraint:
    """Return the constraint "text that *pattern* matches as a whole".

    Classes of digits and letters mean ASCII's, as in JSON schemas.
    """
    _check_chars(pattern, param)
    return Constraint(texts=(_regex_text(pattern),), param=param)


def choice(texts: Sequence[str], param: str) -> Constraint:
    """Return the constraint "one of *texts*".

    Raises:
        InvalidRequestError: There is none, or there are too many.
    """
    if not texts or not all(texts) or len(texts) > MAX_CHOICES:
        raise InvalidRequestError(
            f"{param} must hold 1..{MAX_CHOICES} texts, none of them empty", param=param
        )
    pattern = "|".join(_REGEX_WORDS.sub(r"\\\g<0>", text) for text in texts)
    _check_chars(pattern, param)
    return Constraint(texts=(_regex_text(f"({pattern})"),), param=param)


def grammar(text: str, param: str) -> Constraint:
    """Return the constraint of a grammar in Lark's or llama.cpp's (GBNF) notation.

    Raises:
        InvalidRequestError: It is GBNF that cannot be read.
    """
    _check_chars(text, param)
    try:
        lark = any_to_lark(text)
    except Exception as exc:  # the converter raises whatever its parser trips over
        raise InvalidRequestError(f"{param} is no grammar: {exc}", param=param) from exc
    return Constraint(texts=(LLMatcher.grammar_from_lark(lark),), param=param)


def check_schema(schema: object, param: str) -> Mapping[str, Any]:
    """Return *schema* if it is a JSON object of a size that is compiled here.

    Raises:
        InvalidRequestError: It is not.
    """
    if schema is True:
        return {}
    if not isinstance(schema, Mapping):
        raise InvalidRequestError(
            f"{param} must be a JSON schema, which is an object; got {json.dumps(schema)[:40]}",
            param=param,
        )
    if (depth := depth_of(schema)) > MAX_SCHEMA_DEPTH:
        raise InvalidRequestError(
            f"{param} is nested {depth} deep; at most {MAX_SCHEMA_DEPTH} are compiled, so flatten "
            "it or refer to $defs",
            param=param,
        )
    if (size := size_of(schema)) > MAX_SCHEMA_CHARS:
        raise _too_long(size, param)
    if (count := num_optional(schema)) > MAX_OPTIONAL:
        raise InvalidRequestError(
            f"{param} has an object with {count} properties that may be left out; at most "
            f"{MAX_OPTIONAL} can be followed, so require some of them",
            param=param,
        )
    if (place := endless_place(schema)) is not None:
        raise InvalidRequestError(
            f"{param} has no instance that ends: {place} always needs itself again; let a "
            "property of it be left out",
            param=param,
        )
    return schema


def _regex_text(pattern: str) -> str:
    return str(LLMatcher.grammar_from_lark(f"start: /{regex_to_lark(pattern, 'dw')}/"))


def _check_chars(text: str, param: str) -> None:
    if len(text) > MAX_SCHEMA_CHARS:
        raise _too_long(len(text), param)


def _too_long(size: int, param: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{param} has {size} characters; at most {MAX_SCHEMA_CHARS} are compiled, so send a "
        "shorter one",
        param=param,
    )


def _schema_text(schema: Mapping[str, Any], param: str) -> str:
    try:
        return str(LLMatcher.grammar_from_json_schema(with_spacing(schema)))
    except ValueError as exc:
        raise InvalidRequestError(f"{param} is no JSON schema: {exc}", param=param) from exc
