"""Whether a schema has an instance that comes to an end.

A schema may require itself: each part of it is sound, and no reply could ever be complete.
The compiler does not look for that. Least fixed point over the places that are referred to:
a place ends if it does so by what is known to end. Keywords that set no structure are passed
over, so what is found here is certain, and what is not found may still be impossible.
"""

from collections.abc import Mapping
from typing import Any

from failsoft.engine.structured.json_schema import schemas_in


def endless_place(schema: Mapping[str, Any]) -> str | None:
    """Return a place of *schema* that can never end, as its ``$ref`` names it; None if none can't.

    Only places that the whole needs are looked for: a branch that need not be taken is harmless.
    """
    refs = {node["$ref"] for node in schemas_in(schema) if isinstance(node.get("$ref"), str)} | {
        "#"
    }
    places = {ref: _resolve(schema, ref) for ref in refs}
    ending = {ref for ref, place in places.items() if place is None}  # elsewhere, or nowhere
    while True:
        more = {ref for ref in refs - ending if _ends(places[ref], ending)}
        if not more:
            break
        ending |= more
    if "#" in ending:
        return None
    return min(refs - ending - {"#"}, default="#")


def _resolve(schema: Mapping[str, Any], ref: str) -> object:
    """Return the part of *schema* at a JSON pointer (RFC 6901); None for any other reference."""
    if not ref.startswith("#"):
        return None
    place: object = schema
    for step in filter(None, ref[1:].split("/")):
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(place, Mapping) or name not in place:
            return None
        place = place[name]
    return place


def _ends(node: object, ending: set[str]) -> bool:
    """Whether *node* has a finite instance, given the references that do."""
    if not isinstance(node, Mapping) or "enum" in node or "const" in node:
        return True
    if isinstance(node.get("$ref"), str) and node["$ref"] not in ending:
        return False
    for name, judge in (("allOf", all), ("anyOf", any), ("oneOf", any)):
        branches = node.get(name)
        known = branches if isinstance(branches, list) else []
        if known and not judge(_ends(branch, ending) for branch in known):
            return False
    kind = node.get("type")
    if kind == "object":
        return all(_ends(child, ending) for child in _required(node))
    if kind == "array":
        return all(_ends(child, ending) for child in _least_items(node))
    return True


def _required(node: Mapping[str, Any]) -> list[object]:
    known, names = node.get("properties"), node.get("required")
    if not isinstance(known, Mapping) or not isinstance(names, list):
        return []
    return [known[name] for name in names if isinstance(name, str) and name in known]


def _least_items(node: Mapping[str, Any]) -> list[object]:
    least = node.get("minItems", 0)
    if not isinstance(least, int) or least < 1:
        return []
    first = node.get("prefixItems")
    items: list[object] = list(first[:least]) if isinstance(first, list) else []
    return items if len(items) == least else [*items, node.get("items")]
