"""Whether a schema has an instance that comes to an end.

A schema may require itself: each part of it is sound, and no reply could ever be complete.
The compiler does not look for that. Least fixed point: a part ends if it does so by what is
known to end. Each part waits for what it needs and is looked at once for each, so the time
grows with the schema's length, however its references run. Keywords that set no structure are
passed over: what is found here is certain, and what is not found may still be impossible.
"""

from collections.abc import Iterable, Mapping
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
    ending = _ending(schema, places.values())
    if id(schema) in ending:
        return None
    endless = [ref for ref, place in places.items() if id(place) not in ending and ref != "#"]
    return min(endless, default="#")


def _ending(schema: Mapping[str, Any], places: Iterable[object]) -> set[int]:
    """Return the ``id`` of each part of *places*, or needed by them, that has a finite instance."""
    num_unmet: dict[int, int] = {}
    waiting: dict[int, list[tuple[int, int]]] = {}  # part to (part, number of the need it meets)
    todo = list(places)
    while todo:
        node = todo.pop()
        if id(node) in num_unmet:
            continue
        needs = _needs(node, schema)
        num_unmet[id(node)] = len(needs)
        for number, ways in enumerate(needs):
            todo += ways
            for way in ways:
                waiting.setdefault(id(way), []).append((id(node), number))
    fresh = [node for node, count in num_unmet.items() if not count]
    ending, met = set(fresh), set[tuple[int, int]]()
    while fresh:
        for need in waiting.get(fresh.pop(), ()):
            if need in met:
                continue
            met.add(need)
            num_unmet[need[0]] -= 1
            if not num_unmet[need[0]]:
                fresh.append(need[0])
                ending.add(need[0])
    return ending


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


def _needs(node: object, schema: Mapping[str, Any]) -> list[list[object]]:
    """Return what must end for *node* to: of each list one part at least."""
    if not isinstance(node, Mapping) or "enum" in node or "const" in node:
        return []
    needs: list[list[object]] = []
    if isinstance(ref := node.get("$ref"), str):
        needs.append([_resolve(schema, ref)])  # None, elsewhere or nowhere, needs nothing
    if isinstance(branches := node.get("allOf"), list):
        needs += [[branch] for branch in branches]
    for name in ("anyOf", "oneOf"):
        branches = node.get(name)
        if isinstance(branches, list) and branches:
            needs.append(branches)
    kind = node.get("type")
    if kind == "object":
        needs += [[child] for child in _required(node)]
    if kind == "array":
        needs += [[child] for child in _least_items(node)]
    return needs


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
