"""A caller's JSON schema, narrowed so that a reply that follows it comes to an end.

Every instance of a narrowed schema is one of the caller's, so a reply validates against what
was sent. What is narrowed, and why a model needs it, is in ADR 25:

* A number lies within ±(2**53 - 1), the integers that every JSON reader keeps (RFC 8259,
  section 6), and has six decimals at most: ``number`` alone allows 39e1804, and digits
  without end.
* An object that lists its properties and does not say whether others may come has no others.
* A key of an object that lists none has 64 characters at most.
* A date is a day of the calendar: the compiler knows how long a month is, and no leap years.
* White space is one blank after a comma or a colon, or none; see `with_spacing`.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

MAX_SCHEMA_CHARS = 65_536
"""A schema longer than this is refused: compiling it would take seconds."""
MAX_SCHEMA_DEPTH = 48
"""Nesting of the schema's own JSON: OpenAI's ten levels of objects, and some more."""

MAX_OPTIONAL = 400
"""Properties of one object that may be left out: the compiler gives up at some 500, and only
when the reply gets there."""

MAX_NUMBER = 2**53 - 1
DECIMAL = 1e-6
_YEAR = "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_FOURTH = "(0[48]|[2468][048]|[13579][26])"
_DAY = (
    f"^({_YEAR}-(0[13-9]|1[0-2])-|{_YEAR}-02-[01]|{_YEAR}-02-2[0-8]|"
    f"([0-9]{{2}}{_FOURTH}|{_FOURTH}00)-02-29)"
)
"""What a date begins with: no year 0, and 29 February in leap years alone."""
_WIDE = 1e-3
"""A range narrower than this keeps all its decimals: the grid might miss it."""

_ONE = ("items", "additionalProperties")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_APPLICATORS = ("$ref", "anyOf", "oneOf", "allOf")
_SHORT_KEY = "^.{0,64}$"
_OBJECT_WORDS = ("properties", "required", "patternProperties", "additionalProperties")

Schema = dict[str, Any]


def any_object() -> Schema:
    """Return the schema of any JSON object, its numbers narrowed."""
    value = {"$ref": "#/$defs/value"}
    table: Schema = {"type": "object", "additionalProperties": value}
    kinds: list[Schema] = [{"type": kind} for kind in ("string", "boolean", "null", "number")]
    choices = [*kinds, table, {"type": "array", "items": value}]
    return narrowed({**table, "$defs": {"value": {"anyOf": choices}}})


def with_spacing(schema: Mapping[str, Any]) -> Schema:
    """Return *schema* with llguidance's options: white space bounded, a caller's options gone."""
    spacing = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
    return {**schema, "x-guidance": spacing}


def narrowed(schema: Mapping[str, Any]) -> Schema:
    """Return *schema* narrowed; what is no schema is left for the compiler to refuse."""
    may_close = not any(_is_composed(node) for node in schemas_in(schema))
    return _narrow(schema, may_close=may_close)


def schemas_in(schema: object) -> Iterator[Mapping[str, Any]]:
    """Yield *schema* and every schema inside it."""
    if not isinstance(schema, Mapping):
        return
    yield schema
    children = [schema[name] for name in _ONE if name in schema]
    for name in _LISTS:
        children += schema[name] if isinstance(schema.get(name), list) else []
    for name in _MAPS:
        children += schema[name].values() if isinstance(schema.get(name), Mapping) else []
    for child in children:
        yield from schemas_in(child)


def num_optional(schema: object) -> int:
    """Return the most properties that an object of *schema* lists and does not require."""
    counts = [0]
    for node in schemas_in(schema):
        known, required = node.get("properties"), node.get("required")
        if isinstance(known, Mapping):
            names = required if isinstance(required, list) else []
            counts.append(sum(name not in names for name in known))
    return max(counts)


def size_of(value: object) -> int:
    """Return the length of *value* as JSON, in characters."""
    return len(json.dumps(value))


def _narrow(node: Mapping[str, Any], *, may_close: bool) -> Schema:
    def inner(child: object) -> object:
        return _narrow(child, may_close=may_close) if isinstance(child, Mapping) else child

    result = dict(node)
    for name in _ONE:
        if name in node:
            result[name] = inner(node[name])
    for name in _LISTS:
        if isinstance(node.get(name), list):
            result[name] = [inner(child) for child in node[name]]
    for name in _MAPS:
        if isinstance(node.get(name), Mapping):
            result[name] = {key: inner(child) for key, child in node[name].items()}
    if may_close and _is_open(node):
        result["additionalProperties"] = False
    elif may_close and _is_map(node):
        # As a pattern: propertyNames, which says it plainly, is not compiled.
        result["patternProperties"] = {_SHORT_KEY: result["additionalProperties"]}
        result["additionalProperties"] = False
    _bound_numbers(result)
    if result.get("format") in ("date", "date-time") and "pattern" not in result:
        result["pattern"] = _DAY
    return result


def _is_composed(node: Mapping[str, Any]) -> bool:
    """Whether several schemas speak of one object: to close one would shut out the others."""
    if "allOf" in node:
        return True
    return any(name in node for name in _APPLICATORS) and any(
        name in node for name in _OBJECT_WORDS
    )


def _is_open(node: Mapping[str, Any]) -> bool:
    """Whether *node* lists properties, needs no others, and says nothing of them."""
    known = node.get("properties")
    if not isinstance(known, Mapping) or "additionalProperties" in node:
        return False
    if "patternProperties" in node or "minProperties" in node:
        return False
    required = node.get("required", [])
    return isinstance(required, list) and all(
        isinstance(name, str) and name in known for name in required
    )


def _is_map(node: Mapping[str, Any]) -> bool:
    """Whether *node* lists no properties, and has a schema for whatever comes."""
    others = isinstance(node.get("additionalProperties"), Mapping)
    return others and not any(
        name in node for name in ("properties", "required", "patternProperties")
    )


def _bound_numbers(node: Schema) -> None:
    kinds = node.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "enum" in node or "const" in node or not {"integer", "number"} & {*map(str, kinds)}:
        return
    low = _number(node, "minimum", "exclusiveMinimum")
    high = _number(node, "maximum", "exclusiveMaximum")
    if low is None:
        node["minimum"] = -max(MAX_NUMBER, 0 if high is None else 2 * abs(high))
    if high is None:
        node["maximum"] = max(MAX_NUMBER, 0 if low is None else 2 * abs(low))
    is_wide = low is None or high is None or high - low >= _WIDE
    if "number" in kinds and "multipleOf" not in node and is_wide:
        node["multipleOf"] = DECIMAL


def _number(node: Mapping[str, Any], *names: str) -> float | None:
    """Return a bound that *node* sets; the caller's other words of it are the compiler's."""
    for name in names:
        value = node.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
    return None
