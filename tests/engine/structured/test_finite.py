"""Schemas that need themselves again, and those that only may."""

from typing import Any

import pytest

from failsoft.engine.structured.finite import endless_place

NODE: dict[str, Any] = {
    "type": "object",
    "properties": {"next": {"$ref": "#/$defs/node"}},
    "required": ["next"],
}
TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
    "required": ["children"],
}


def of(node: dict[str, Any], **root: Any) -> dict[str, Any]:
    return {"$ref": "#/$defs/node", **root, "$defs": {"node": node}}


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        (of(NODE), "#/$defs/node"),
        ({**NODE, "properties": {"next": {"$ref": "#"}}}, "#"),
        (of({"allOf": [NODE]}), "#/$defs/node"),
        (of({"anyOf": [NODE, {"$ref": "#/$defs/node"}]}), "#/$defs/node"),
        (of({"type": "array", "items": {"$ref": "#/$defs/node"}, "minItems": 1}), "#/$defs/node"),
        (
            of({"type": "array", "prefixItems": [{"$ref": "#/$defs/node"}], "minItems": 1}),
            "#/$defs/node",
        ),
        (of({**NODE, "required": []}), None),
        (of({"anyOf": [NODE, {"type": "null"}]}), None),
        (of({**NODE, "type": ["object", "null"]}), None),
        (of(TREE), None),
        ({"type": "object", "properties": {"a": of(NODE)}, "$defs": {"node": NODE}}, None),
        ({"$ref": "https://example.com/x"}, None),
        ({"$ref": "#/nowhere"}, None),
        ({"$ref": 5, "allOf": 3, "type": "array", "minItems": "x"}, None),
        ({"const": {"$ref": "#"}}, None),
        ({}, None),
    ],
)
def test_a_schema_that_needs_itself_has_no_instance(
    schema: dict[str, Any], place: str | None
) -> None:
    """A way out is enough; what is malformed is the compiler's to refuse."""
    assert endless_place(schema) == place
