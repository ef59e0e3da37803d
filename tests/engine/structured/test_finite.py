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
        ({"$ref": "#/x/a", "x": {"a": {"$ref": "#/x/b"}, "b": {"type": "null"}}}, None),
        ({"$ref": "#/x/a", "x": {"a": {"$ref": "#/x/b"}, "b": {"$ref": "#/x/a"}}}, "#/x/a"),
        ({}, None),
    ],
)
def test_a_schema_that_needs_itself_has_no_instance(
    schema: dict[str, Any], place: str | None
) -> None:
    """A way out is enough; what is malformed is the compiler's to refuse."""
    assert endless_place(schema) == place


def test_many_names_of_one_place_are_one_place() -> None:
    """Each reference once looked at all of the others again, for hours of a core."""
    length = 300
    chain = {f"d{n}": {**NODE, "properties": {"next": ref(f"d{n + 1}")}} for n in range(length)}
    known: dict[str, Any] = {f"p{n}": {"type": "object"} for n in range(300)}
    wide = {"type": "object", "properties": {**known, "z": ref("d0")}, "required": [*known, "z"]}
    names = [f"#{'/' * a}$defs{'/' * b}wide" for a in range(1, 30) for b in range(1, 30)]
    defs = {**chain, "wide": wide, f"d{length}": {"type": "null"}}

    assert endless_place({"anyOf": [{"$ref": name} for name in names], "$defs": defs}) is None


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}
