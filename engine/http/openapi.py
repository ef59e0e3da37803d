"""The OpenAPI 3.2 document of one server, made of its routes and pydantic schemas.

It is exact for the server that serves it: the model's name, its vocabulary and length, the
server's own limits, and whether a key is asked for. 3.2 because that version can say what
an event of a stream holds.
"""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from failsoft.config.http import DEADLINE_HEADER, MAX_DEADLINE_MS, PROGRESS_HEADER, VERSION_HEADER
from failsoft.engine.http import latency
from failsoft.engine.http.about import VERSION
from failsoft.engine.http.answer_schemas import FaultAnswer
from failsoft.engine.http.field_limits import field_limits
from failsoft.engine.http.operations import Operation
from failsoft.engine.http.request_id import HEADER as REQUEST_ID_HEADER
from failsoft.engine.http.served import ServerState

Schema = dict[str, Any]

_REF = "#/components/schemas/"
_OWN_WORDS = ("kinds", "of_list", "of_object")
"""What a limit says of how it is to be applied, and no schema does."""

_FAULTS: dict[int, str] = {
    400: "Bad input; `param` names the field: `invalid_json`, `request_too_large`, "
    "`context_length_exceeded`, `unsupported_parameter`, `no_chat_template`, "
    "`chat_template_error`, `no_token`, `host_not_allowed`, or null.",
    401: "The key is missing or wrong: `invalid_api_key`.",
    403: "A page of another origin asks: `origin_not_allowed`.",
    404: "Another model is asked for: `model_not_found`.",
    408: "The body did not arrive in time: `body_too_slow`.",
    415: "The body is not announced as JSON: `unsupported_media_type`.",
    500: "A forward failed (`exception`, `out_of_memory`, `bad_logits`, `grammar`) or a bug: "
    "`internal_error`. In a stream that has begun, an event.",
    503: "The queue is full (`queue_full`) or the engine stops (`engine_stopped`): "
    "ask another, or this one later.",
    504: "The caller's own deadline passed: `deadline_exceeded`.",
}


def build_document(state: ServerState, operations: Iterable[Operation]) -> Schema:
    """Return the document of the server over *state*."""
    operations = list(operations)
    components = _components(operations, state)
    paths: dict[str, Schema] = {}
    for operation in operations:
        described = _describe(operation, has_key=state.config.api_key is not None)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    document: Schema = {
        "openapi": "3.2.0",
        "info": {
            "title": f"failsoft engine: {state.served.name}",
            "version": VERSION,
            "description": "OpenAI's API over one engine. Fields that are not named here steer "
            "no answer and are accepted.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": components},
    }
    if state.config.api_key is not None:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
    return document


def _components(operations: list[Operation], state: ServerState) -> dict[str, Schema]:
    bodies = {body for operation in operations for body in operation.bodies}
    answers = {answer for operation in operations for answer in operation.answers.values()}
    chunks = {operation.chunk for operation in operations if operation.chunk is not None}
    wanted = sorted(
        ((answers | chunks | {FaultAnswer}) - {BaseModel}), key=lambda model: model.__name__
    )
    in_order = sorted(bodies, key=lambda model: model.__name__)
    _, defined = models_json_schema(
        [
            *((body, "validation") for body in in_order),
            *((answer, "validation") for answer in wanted),
        ],
        ref_template=_REF + "{model}",
    )
    schemas: dict[str, Schema] = defined["$defs"]
    for operation in operations:
        for body, refused in operation.bodies.items():
            _bound(schemas[body.__name__], field_limits(body, state.served), refused)
    for schema in schemas.values():
        _tidy(schema)
    return schemas


# -- bodies -----------------------------------------------------------------------------------


def _bound(
    schema: Schema, limits: Mapping[str, Schema], refused: Mapping[str, tuple[Any, ...]]
) -> None:
    """Add to a body's schema what its types do not say."""
    properties: dict[str, Schema] = schema["properties"]
    for name, limit in limits.items():
        for branch in _branches(properties.get(name, {})):
            _bound_branch(branch, limit)
    for name, neutral in refused.items():
        properties[name] = {
            "enum": [*neutral, None],
            "description": "Not supported with any other value.",
        }


def _bound_branch(branch: Schema, limit: Schema) -> None:
    """Limit a value, or each member of a list or of an object."""
    match branch.get("type"):
        case "array":
            _bound_branch(branch["items"], limit)
            branch.update(limit.get("of_list", {}))
        case "object":
            _bound_branch(branch["additionalProperties"], limit)
            branch.update(limit.get("of_object", {}))
        case "integer" | "number" | "string" as kind if kind in limit.get("kinds", (kind,)):
            branch.update({k: v for k, v in limit.items() if k not in _OWN_WORDS})


def _branches(schema: Schema) -> list[Schema]:
    branches: list[Schema] = schema.get("anyOf", [schema])
    return branches


def _tidy(schema: Any) -> None:
    """Drop pydantic's own titles of fields, which only repeat their names."""
    if isinstance(schema, list):
        for each in schema:
            _tidy(each)
    elif isinstance(schema, dict):
        for name, each in schema.get("properties", {}).items():
            if isinstance(each, dict) and each.get("title") == name.replace("_", " ").title():
                del each["title"]
        for each in schema.values():
            _tidy(each)


# -- operations -------------------------------------------------------------------------------


def _describe(operation: Operation, *, has_key: bool) -> Schema:
    described: Schema = {
        "operationId": _operation_id(operation),
        "summary": operation.summary,
        "tags": [operation.group],
        "parameters": list(_parameters(operation)),
        "responses": _responses(operation, has_key=has_key),
    }
    if operation.bodies:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _one_of(list(operation.bodies))}},
        }
    if operation.is_open and has_key:
        described["security"] = []
    return described


def _operation_id(operation: Operation) -> str:
    words = operation.path.replace("{", "").replace("}", "").replace(".", "/").split("/")
    return "_".join([operation.method.lower(), *filter(None, words)])


def _parameters(operation: Operation) -> Iterable[Schema]:
    if "{" in operation.path:
        name = operation.path.partition("{")[2].rstrip("}")
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    yield {
        "name": REQUEST_ID_HEADER,
        "in": "header",
        "description": "Comes back on the answer; up to 128 printable ASCII characters.",
        "schema": {"type": "string"},
    }
    if operation.chunk is not None:
        yield {
            "name": DEADLINE_HEADER,
            "in": "header",
            "description": "Milliseconds for which the caller will wait.",
            "schema": {"type": "integer", "minimum": 1, "maximum": MAX_DEADLINE_MS},
        }
        yield {
            "name": PROGRESS_HEADER,
            "in": "header",
            "description": "`on`: a stream sends a chunk without text, with the usage so far, "
            "while tokens come whose text is held.",
            "schema": {"enum": ["on", "off"]},
        }


def _responses(operation: Operation, *, has_key: bool) -> dict[str, Schema]:
    statuses = {400, 403, 500, *operation.faults}
    if has_key and not operation.is_open:
        statuses.add(401)
    if operation.method == "POST":
        statuses.add(415)
    responses = {str(status): _fault(status) for status in statuses - set(operation.answers)}
    for status, answer in operation.answers.items():
        responses[str(status)] = _answer(operation, status, answer)
    if operation.text_types:
        content = {kind: {"schema": {"type": "string"}} for kind in operation.text_types}
        responses["200"] = {"description": "OK", "headers": _headers(200), "content": content}
    return dict(sorted(responses.items()))


def _answer(operation: Operation, status: int, answer: type[BaseModel]) -> Schema:
    is_any = answer is BaseModel
    content: Schema = {
        "application/json": {"schema": {"type": "object"} if is_any else _ref(answer)}
    }
    headers = _headers(200)
    if operation.chunk is not None:
        content["text/event-stream"] = {"itemSchema": _event(operation.chunk)}
        headers[VERSION_HEADER] = {
            "description": "Digest of the version that writes the answer.",
            "required": True,
            "schema": {"type": "string"},
        }
        headers[latency.HEADER] = {
            "description": "Of a whole answer: milliseconds in queue, prefill and decode.",
            "schema": {"type": "string"},
        }
    return {"description": HTTPStatus(status).phrase, "headers": headers, "content": content}


def _event(chunk: type[BaseModel]) -> Schema:
    """An event: a chunk, the end, or the fault that stands in the end's place."""
    data = {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": {"anyOf": [_ref(chunk), _ref(FaultAnswer)]},
    }
    return {
        "type": "object",
        "required": ["data"],
        "properties": {"data": {"anyOf": [{"const": "[DONE]"}, data]}},
    }


def _fault(status: int) -> Schema:
    return {
        "description": _FAULTS[status],
        "headers": _headers(status),
        "content": {"application/json": {"schema": _ref(FaultAnswer)}},
    }


def _headers(status: int) -> dict[str, Schema]:
    text = {"schema": {"type": "string"}, "required": True}
    headers: dict[str, Schema] = {
        REQUEST_ID_HEADER: {"description": "The caller's own id, or a fresh one.", **text}
    }
    if status == 401:
        headers["www-authenticate"] = {"description": "`Bearer`.", **text}
    if status == 503:
        wait = {"type": "integer", "minimum": 1}
        headers["retry-after"] = {"description": "Seconds.", "required": True, "schema": wait}
    if status in (400, 500, 504):
        headers["x-should-retry"] = {
            "description": "`false` where the same request would fail again.",
            "schema": {"enum": ["false"]},
        }
    return headers


def _one_of(models: list[type[BaseModel]]) -> Schema:
    return _ref(models[0]) if len(models) == 1 else {"anyOf": [_ref(each) for each in models]}


def _ref(model: type[BaseModel]) -> Schema:
    return {"$ref": f"{_REF}{model.__name__}"}
