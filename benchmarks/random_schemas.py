"""Random JSON schemas: every keyword that the engine enforces, strings and arrays bounded.

A seed and a number give the same schema on every machine.
"""

import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Schema = dict[str, Any]

# fmt: off
_WORDS = (
    "name", "title", "city", "country", "colour", "status", "kind", "price", "total", "count",
    "rating", "score", "level", "owner", "email", "address", "street", "phone", "birthday",
    "note", "summary", "label", "group", "size", "weight", "height", "width", "language",
    "currency", "author", "genre", "species", "model", "brand", "priority", "stage", "region",
    "topic", "source",
)
# fmt: on
_PATTERNS = (
    r"^[A-Z]{2}-\d{3,5}$",
    r"^(\+\d{1,2} )?\d{3}-\d{4}$",
    r"^#[0-9a-f]{6}$",
    r"^[a-z]{1,8}@[a-z]{1,8}\.(com|org|net)$",
    r"^v\d{1,2}\.\d{1,2}(\.\d{1,2})?$",
)
_FORMATS = ("date", "ipv4", "uuid")
MAX_DEPTH = 3


def random_schema(number: int, *, seed: int = 7) -> Schema:
    """Return schema *number* of the sequence that *seed* gives; its instances are objects."""
    maker = _Maker(random.Random(f"{seed}/{number}"))
    root = maker.object(0)
    if maker.defs:
        root["$defs"] = maker.defs
    return root


class _Maker:
    """Makes one schema.

    Args:
        rng: Where its choices come from.
    """

    def __init__(self, rng: random.Random) -> None:
        self.defs: dict[str, Schema] = {}
        self._rng = rng

    def object(self, depth: int) -> Schema:
        """Return the schema of an object with listed properties."""
        rng = self._rng
        names = rng.sample(_WORDS, rng.randint(1, 6 - depth))
        schema: Schema = {
            "type": "object",
            "properties": {name: self._value(depth + 1) for name in names},
        }
        required = [name for name in names if rng.random() < 0.7]
        if required:
            schema["required"] = required
        if rng.random() < 0.5:
            schema["additionalProperties"] = False
        if rng.random() < 0.3:
            schema["description"] = f"A {rng.choice(_WORDS)} and what belongs to it."
        return schema

    def _value(self, depth: int) -> Schema:
        rng = self._rng
        flat: list[Callable[[], Schema]] = [
            self._string,
            self._string,
            self._integer,
            self._number,
            self._enum,
            self._formatted,
            lambda: {"type": "boolean"},
            lambda: {"const": rng.choice([rng.choice(_WORDS), 3, True, None])},
            lambda: {"type": [rng.choice(["integer", "boolean"]), "null"]},
        ]
        deep: list[Callable[[], Schema]] = [
            lambda: self.object(depth),
            lambda: self._array(depth),
            lambda: self._either(depth),
            lambda: self._reference(depth),
            lambda: self._map(depth),
        ]
        return rng.choice(flat + deep if depth < MAX_DEPTH else flat)()

    def _string(self) -> Schema:
        low = self._rng.choice([0, 0, 1, 3])
        return {"type": "string", "minLength": low, "maxLength": low + self._rng.randint(4, 24)}

    def _formatted(self) -> Schema:
        if self._rng.random() < 0.5:
            return {"type": "string", "pattern": self._rng.choice(_PATTERNS)}
        return {"type": "string", "format": self._rng.choice(_FORMATS)}

    def _integer(self) -> Schema:
        rng = self._rng
        low = rng.randint(-1000, 1000)
        bounds: list[Schema] = [
            {},
            {"minimum": 0},
            {"minimum": low, "maximum": low + rng.randint(1, 5000)},
            {"exclusiveMinimum": low},
            {"minimum": 0, "multipleOf": rng.choice([2, 5, 10])},
        ]
        return {"type": "integer", **rng.choice(bounds)}

    def _number(self) -> Schema:
        rng = self._rng
        bounds: list[Schema] = [
            {},
            {"minimum": 0, "maximum": 1},
            {"exclusiveMinimum": 0},
            {"minimum": -90, "maximum": 90},
        ]
        return {"type": "number", **rng.choice(bounds)}

    def _enum(self) -> Schema:
        return {"enum": self._rng.sample(_WORDS, self._rng.randint(2, 6))}

    def _array(self, depth: int) -> Schema:
        rng = self._rng
        least = rng.choice([0, 0, 1, 2])
        schema: Schema = {
            "type": "array",
            "items": self._value(depth + 1),
            "minItems": least,
            "maxItems": least + rng.randint(1, 3),
        }
        if rng.random() < 0.2:
            first = [self._value(MAX_DEPTH), self._value(MAX_DEPTH)]
            return {"type": "array", "prefixItems": first, "items": False, "minItems": 2}
        return schema

    def _either(self, depth: int) -> Schema:
        return {"anyOf": [self._value(depth + 1), {"type": "null"}]}

    def _reference(self, depth: int) -> Schema:
        name = f"Part{len(self.defs)}"
        self.defs[name] = {}
        self.defs[name] = self.object(depth)
        return {"$ref": f"#/$defs/{name}"}

    def _map(self, depth: int) -> Schema:
        most = self._rng.randint(1, 3)
        value = self._value(depth + 1)
        return {"type": "object", "additionalProperties": value, "maxProperties": most}
