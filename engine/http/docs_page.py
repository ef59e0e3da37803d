"""The OpenAPI document as one HTML page: no script, nothing loaded, works when saved.

Written on the server, so that a caller who needs the key can fetch it like any other
route. Everything is escaped by the template.
"""

import base64
import hashlib
import json
import re
from importlib.resources import files
from typing import Any

from jinja2 import Environment
from markupsafe import Markup, escape

_PAGES = files("failsoft.engine.http") / "pages"
_STYLE = (_PAGES / "docs.css").read_text("utf-8")
_STYLE_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_DIGEST}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy of the page: its own style and nothing else."""

_STARRED = re.compile(r"\*(\w+)\*")

Schema = dict[str, Any]


def render(document: Schema) -> str:
    """Return the page for an OpenAPI document of ours."""
    groups: dict[str, list[Schema]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            row = {"path": path, "method": method.upper(), **operation}
            groups.setdefault(operation["tags"][0], []).append(row)
    return _TEMPLATE.render(
        info=document["info"],
        groups=groups,
        schemas=document["components"]["schemas"],
        has_key="security" in document,
        style=Markup(_STYLE),  # noqa: S704 a file of ours
    )


def _type(schema: Schema) -> Markup:
    """Say in words what a value may be, schemas by their names as links."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return Markup('<a href="#{0}">{0}</a>').format(name)
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return Markup(" or ").join(dict.fromkeys(map(_type, schema[key])))
    if "const" in schema:
        return _value(schema["const"])
    if "enum" in schema:
        return Markup(" or ").join(map(_value, schema["enum"]))
    kind = schema.get("type", "anything")
    if kind == "array":
        return Markup("list of ({}){}").format(_type(schema.get("items", {})), _range(schema))
    return Markup("{}{}").format(kind, _range(schema))


def _range(schema: Schema) -> str:
    """Return a schema's limits, such as `` 0..2``; of a list, how long it may be."""
    low = schema.get("minimum", schema.get("minLength", schema.get("minItems")))
    high = schema.get("maximum", schema.get("maxLength", schema.get("maxItems")))
    if "exclusiveMinimum" in schema:
        return f" above {schema['exclusiveMinimum']} up to {high}"
    if low is None and high is None:
        return ""
    ends = (
        f"up to {high}" if low is None else f"{low} or more" if high is None else f"{low}..{high}"
    )
    match schema.get("type"):
        case "array":
            return f", {ends} members"
        case "string":
            return f" of {ends} characters"
    return f" {ends}"


def _value(value: object) -> Markup:
    """Return a JSON value as code."""
    return Markup("<code>{}</code>").format(json.dumps(value))


def _ticks(text: str) -> Markup:
    """Return *text* with what stands between backticks, or between asterisks, as code."""
    pieces = _STARRED.sub(r"`\1`", text.replace("``", "`")).split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if index % 2 else escape(piece)
        for index, piece in enumerate(pieces)
    )


def _schema_of(media: Schema) -> Schema:
    """Return what a media type holds: of a stream, what the data of its events hold."""
    if "itemSchema" not in media:
        schema: Schema = media["schema"]
        return schema
    first, second = media["itemSchema"]["properties"]["data"]["anyOf"]
    return {"anyOf": [*second["contentSchema"]["anyOf"], first]}


_ENVIRONMENT = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
_ENVIRONMENT.filters.update({"type": _type, "ticks": _ticks, "schema_of": _schema_of})
_TEMPLATE = _ENVIRONMENT.from_string((_PAGES / "docs.html").read_text("utf-8"))
