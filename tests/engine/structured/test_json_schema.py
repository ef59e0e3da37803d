"""A narrowed schema: what it adds, and that it never allows more than the caller's."""

from typing import Any

import pytest

from failsoft.engine.structured.json_schema import DECIMAL, MAX_NUMBER, narrowed


@pytest.mark.parametrize(
    ("schema", "added"),
    [
        ({"type": "integer"}, {"minimum": -MAX_NUMBER, "maximum": MAX_NUMBER}),
        ({"type": ["integer", "null"], "minimum": 3}, {"maximum": MAX_NUMBER}),
        ({"type": "integer", "exclusiveMaximum": 10**20}, {"minimum": -2 * 10**20}),
        (
            {"type": "number"},
            {"minimum": -MAX_NUMBER, "maximum": MAX_NUMBER, "multipleOf": DECIMAL},
        ),
        ({"type": "number", "minimum": 0, "maximum": 1e-5}, {}),
        ({"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.5}, {}),
        ({"type": "integer", "enum": [1, 2]}, {}),
        ({"type": "string"}, {}),
        ({"properties": {"a": {"type": "string"}}}, {"additionalProperties": False}),
        ({"properties": {}, "additionalProperties": True}, {}),
        (
            {"additionalProperties": {"type": "null"}},
            {
                "patternProperties": {"^.{0,64}$": {"type": "null"}},
                "additionalProperties": False,
            },
        ),
        ({"additionalProperties": {}, "required": ["a"]}, {}),
        ({"properties": {}, "patternProperties": {"^x": {}}}, {}),
        ({"properties": {}, "required": ["other"]}, {}),
        ({"properties": {}, "minProperties": 1}, {}),
        ({"properties": "no object"}, {}),
        ({"items": [1], "anyOf": 5}, {}),
    ],
)
def test_narrowing_adds_bounds_where_there_were_none(
    schema: dict[str, Any], added: dict[str, Any]
) -> None:
    """What the caller says stays as it is; what is no schema is the compiler's to refuse."""
    assert narrowed(schema) == {**schema, **added}


def test_every_schema_inside_is_narrowed() -> None:
    """Wherever a schema may stand, and nowhere else: an enum may hold what looks like one."""
    inner, bounded = {"type": "integer"}, narrowed({"type": "integer"})
    schema = {
        "type": "object",
        "properties": {"a": inner, "b": {"type": "array", "items": inner, "prefixItems": [inner]}},
        "additionalProperties": inner,
        "patternProperties": {"x": inner},
        "$defs": {"d": {"anyOf": [inner, {"enum": [inner]}]}},
    }

    result = narrowed(schema)

    assert result["properties"]["a"] == bounded
    assert result["properties"]["b"]["items"] == bounded
    assert result["properties"]["b"]["prefixItems"] == [bounded]
    assert result["additionalProperties"] == bounded
    assert result["patternProperties"]["x"] == bounded
    assert result["$defs"]["d"]["anyOf"] == [bounded, {"enum": [inner]}]


@pytest.mark.parametrize(
    "composed",
    [
        {"allOf": [{"$ref": "#/$defs/part"}]},
        {"$ref": "#/$defs/part", "properties": {"b": {}}},
        {"anyOf": [{"$ref": "#/$defs/part"}], "required": ["b"]},
    ],
)
def test_no_object_is_closed_in_a_document_that_composes_objects(composed: dict[str, Any]) -> None:
    """The part might be one of those that speak of the same object."""
    schema = {**composed, "$defs": {"part": {"properties": {"a": {}}}}}

    assert "additionalProperties" not in narrowed(schema)["$defs"]["part"]
