"""Request fields that say what an answer must look like, and the constraint they make.

OpenAI's ``response_format``, vLLM's ``structured_outputs`` and its older ``guided_…`` names,
llama.cpp's ``grammar`` and ``json_schema``. One request may set one of them.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from failsoft.engine.http.strict import Strict
from failsoft.engine.structured import constraint
from failsoft.engine.structured.constraint import Constraint
from failsoft.engine.structured.json_schema import any_object
from failsoft.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable


def _check_schema(value: object) -> object:
    if value is None or isinstance(value, str | dict):
        return value
    raise ValueError("must be a JSON schema: an object, or the text of one")


SchemaField = Annotated[str | dict[str, Any] | None, BeforeValidator(_check_schema)]
"""Checked before pydantic tries one kind after the other, and blames a field for each."""


class JsonSchemaFormat(Strict):
    """``response_format.json_schema``; *strict* or not, the schema is always enforced."""

    name: str | None = None
    description: str | None = None
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


_WITH_SCHEMA: list[Any] = [
    {"properties": {"type": {"enum": ["text", "json_object"]}}},
    {
        "required": ["json_schema"],
        "properties": {
            "json_schema": {
                "type": "object",
                "required": ["schema"],
                "properties": {"schema": {"type": "object"}},
            }
        },
    },
]
"""In JSON Schema what `ResponseFormat` checks of its fields together."""


class ResponseFormat(Strict):
    """OpenAI's ``response_format``."""

    model_config = ConfigDict(json_schema_extra={"anyOf": _WITH_SCHEMA})

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None
    object_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    """llama.cpp's: a schema beside ``json_object``."""

    @model_validator(mode="after")
    def _check_schema(self) -> Self:
        if self.type == "json_schema" and (
            self.json_schema is None or self.json_schema.json_schema is None
        ):
            raise ValueError("json_schema.schema must hold the JSON schema")
        return self


def _refuse_zero(value: object) -> object:
    if value is not None and value is not False:
        raise ValueError("must be false or null")  # to Python 0 would be the same as false
    return value


_Off = Annotated[Literal[False] | None, BeforeValidator(_refuse_zero)]


class StructuredOutputs(Strict):
    """vLLM's ``structured_outputs``."""

    json_schema: SchemaField = Field(default=None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    whitespace_pattern: None = None
    structural_tag: None = None
    disable_any_whitespace: _Off = None
    disable_additional_properties: _Off = None


class FormatFields(Strict):
    """The fields themselves, for a body to inherit."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: SchemaField = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    grammar: str | None = None
    json_schema: SchemaField = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFormat:
    """What an answer must be."""

    kind: Literal["json", "json_object", "regex", "choice", "grammar"]
    value: Any
    param: str

    def constraint(self) -> Constraint:
        """Return it as a constraint.

        Raises:
            InvalidRequestError: It is malformed.
        """
        if self.kind == "json_object":
            return constraint.json_object(self.param)
        if self.kind == "json":
            return constraint.json_schema(_schema_of(self.value, self.param), self.param)
        makers: dict[str, Callable[[Any, str], Constraint]] = {
            "regex": constraint.regex,
            "choice": constraint.choice,
            "grammar": constraint.grammar,
        }
        return makers[self.kind](self.value, self.param)

    def schema(self) -> dict[str, Any] | None:
        """Return the JSON schema of the answer; None when it need not be JSON."""
        if self.kind == "json_object":
            return any_object()
        if self.kind == "json":
            return dict(constraint.check_schema(_schema_of(self.value, self.param), self.param))
        return None


class _Asked(NamedTuple):
    kind: Literal["json", "json_object", "regex", "choice", "grammar"]
    value: Any
    param: str


def read_format(body: FormatFields) -> OutputFormat | None:
    """Return what *body* asks for; None when its text is free.

    Raises:
        InvalidRequestError: It asks for two things at once.
    """
    asked = [entry for entry in _asked(body) if entry.value not in (None, False)]
    if not asked:
        return None
    if len(asked) > 1:
        first, second = asked[0].param, asked[1].param
        raise InvalidRequestError(
            f"{second} and {first} both say what the answer must be; send one of them",
            param=second,
        )
    return OutputFormat(**asked[0]._asdict())


def _asked(body: FormatFields) -> list[_Asked]:
    outputs = body.structured_outputs or StructuredOutputs()
    return [
        _response_format(body.response_format),
        _Asked("json", outputs.json_schema, "structured_outputs.json"),
        _Asked("regex", outputs.regex, "structured_outputs.regex"),
        _Asked("choice", outputs.choice, "structured_outputs.choice"),
        _Asked("grammar", outputs.grammar, "structured_outputs.grammar"),
        _Asked("json_object", outputs.json_object, "structured_outputs.json_object"),
        _Asked("json", body.guided_json, "guided_json"),
        _Asked("regex", body.guided_regex, "guided_regex"),
        _Asked("choice", body.guided_choice, "guided_choice"),
        _Asked("grammar", body.guided_grammar, "guided_grammar"),
        _Asked("grammar", body.grammar, "grammar"),
        _Asked("json", body.json_schema, "json_schema"),
    ]


def _response_format(asked: ResponseFormat | None) -> _Asked:
    if asked is None or asked.type == "text":
        return _Asked("json", None, "response_format")
    if asked.type == "json_schema":
        assert asked.json_schema is not None
        return _Asked("json", asked.json_schema.json_schema, "response_format")
    if asked.object_schema is not None:
        return _Asked("json", asked.object_schema, "response_format")
    return _Asked("json_object", True, "response_format")


def _schema_of(value: str | dict[str, Any], param: str) -> object:
    """Return a schema that may come as JSON text.

    Raises:
        InvalidRequestError: The text is not JSON.
    """
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as exc:
        raise InvalidRequestError(f"{param} is not valid JSON: {exc}", param=param) from exc
