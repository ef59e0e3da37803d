"""The tool fields of a chat: what may be called, whether it must be, and what came of it."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import WithJsonSchema, field_validator

from failsoft.engine.http.output_format import OutputFormat
from failsoft.engine.http.strict import Strict
from failsoft.engine.structured import tool_grammar
from failsoft.engine.structured.constraint import Constraint, check_schema
from failsoft.engine.structured.tool_calls import CallReader, ForcedCalls, FreeCalls
from failsoft.engine.structured.tool_grammar import MAX_CALLS, ToolSignature
from failsoft.engine.text.tool_turns import ToolCall
from failsoft.errors import InvalidRequestError

MAX_TOOLS = 128
"""As at OpenAI."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class FunctionDefinition(Strict):
    """A function that the model may call."""

    name: Annotated[str, WithJsonSchema({"type": "string", "pattern": f"^{_NAME.pattern}$"})]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    @field_validator("name")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError("must be 1..64 letters, digits, dots, hyphens or underscores")
        return value


class Tool(Strict):
    """One tool; functions are the only kind."""

    type: Literal["function"]
    function: FunctionDefinition


class _FunctionName(Strict):
    name: str


class NamedTool(Strict):
    """``tool_choice`` that names a function."""

    type: Literal["function"]
    function: _FunctionName


_ChoiceInput = Literal["none", "auto", "required"] | NamedTool | None
"""For the OpenAPI document."""


class FunctionCallTurn(Strict):
    """The call inside an assistant's turn."""

    name: str
    arguments: str


class ToolCallTurn(Strict):
    """A call that the assistant made earlier."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCallTurn

    def to_call(self) -> ToolCall:
        """Return it as the codec takes it."""
        return ToolCall(call_id=self.id, name=self.function.name, arguments=self.function.arguments)


class ToolFields(Strict):
    """The fields themselves, for a body to inherit."""

    tools: list[Tool] | None = None
    tool_choice: str | NamedTool | None = None
    parallel_tool_calls: bool | None = None

    @field_validator("tools")
    @classmethod
    def _check_tools(cls, value: list[Tool] | None) -> list[Tool] | None:
        if value is not None and len(value) > MAX_TOOLS:
            raise ValueError(f"must hold at most {MAX_TOOLS} tools, got {len(value)}")
        names = [tool.function.name for tool in value or ()]
        if len(set(names)) < len(names):
            raise ValueError("must not name two functions alike")
        return value

    @field_validator("tool_choice", mode="before", json_schema_input_type=_ChoiceInput)
    @classmethod
    def _check_choice(cls, value: object) -> object:
        if value in (None, "none", "auto", "required"):
            return value
        if isinstance(value, dict) and value.get("type") == "function":
            return NamedTool.model_validate(value)
        raise ValueError(
            'must be "none", "auto", "required" or {"type": "function", "function": {"name": …}}'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan:
    """How one chat deals with tools."""

    template_tools: list[dict[str, Any]] = field(default_factory=list)
    """What the prompt offers."""
    constraint: Constraint | None = None
    """What the answer must follow, the wish for JSON included."""


class _Choice(NamedTuple):
    must_call: bool
    tools: list[Tool]
    """What may be called."""
    max_calls: int


def plan_calls(body: ToolFields, wanted: OutputFormat | None) -> CallPlan:
    """Return how *body*'s answer deals with tools.

    Args:
        body: The request.
        wanted: What its text must be, when no tool is called.

    Raises:
        InvalidRequestError: ``tool_choice`` asks for a tool that is not there, or *wanted* and
            the tools cannot be had together.
    """
    choice = _choose(body)
    if choice is None:
        return CallPlan(constraint=wanted.constraint() if wanted else None)
    names = {tool.function.name for tool in choice.tools}
    every = [_signature(tool, place) for place, tool in enumerate(body.tools or ())]
    signatures = [signature for signature in every if signature.name in names]
    offered = [tool.model_dump(exclude_none=True) for tool in body.tools or ()]
    if choice.must_call:
        return CallPlan(
            template_tools=offered,
            constraint=tool_grammar.only_calls(
                signatures, max_calls=choice.max_calls, param="tools"
            ),
        )
    return CallPlan(
        template_tools=offered,
        constraint=_free_constraint(choice, signatures, wanted),
    )


def reader_of(body: ToolFields) -> Callable[[], CallReader] | None:
    """Return what makes a reader for each choice of *body*'s answer; None when none can call.

    Raises:
        InvalidRequestError: A tool is asked for that is not there.
    """
    choice = _choose(body)
    if choice is None:
        return None
    if choice.must_call:
        return ForcedCalls
    return partial(FreeCalls, [tool.function.name for tool in choice.tools])


def _choose(body: ToolFields) -> _Choice | None:
    """Return what may or must be called; None when nothing can.

    Raises:
        InvalidRequestError: A tool is asked for that is not there.
    """
    tools = body.tools or []
    choice = body.tool_choice
    if choice in (None, "none", "auto"):
        is_open = tools and choice != "none"
        max_calls = 1 if body.parallel_tool_calls is False else MAX_CALLS
        return _Choice(must_call=False, tools=tools, max_calls=max_calls) if is_open else None
    if not tools:
        raise InvalidRequestError(
            "tool_choice asks for a call and there are no tools; send them in tools",
            param="tool_choice",
        )
    if not isinstance(choice, NamedTool):
        max_calls = 1 if body.parallel_tool_calls is False else MAX_CALLS
        return _Choice(must_call=True, tools=tools, max_calls=max_calls)
    named = [tool for tool in tools if tool.function.name == choice.function.name]
    if not named:
        known = ", ".join(tool.function.name for tool in tools)
        raise InvalidRequestError(
            f"tool_choice names {choice.function.name!r}, which tools does not hold; it holds "
            f"{known}",
            param="tool_choice.function.name",
        )
    return _Choice(must_call=True, tools=named, max_calls=1)


def _free_constraint(
    choice: _Choice, signatures: list[ToolSignature], wanted: OutputFormat | None
) -> Constraint | None:
    """Return what binds an answer that may call; None when it is free, calls included."""
    if wanted is not None:
        schema = wanted.schema()
        if schema is None:
            raise InvalidRequestError(
                f"{wanted.param} cannot be followed beside tools unless it asks for JSON; leave "
                'one out, or send tool_choice "none"',
                param=wanted.param,
            )
        return tool_grammar.calls_or_json(
            signatures, schema, max_calls=choice.max_calls, param=wanted.param
        )
    is_bound = choice.max_calls == 1 or any(tool.function.strict for tool in choice.tools)
    if not is_bound:
        return None
    return tool_grammar.text_with_calls(signatures, is_parallel=choice.max_calls > 1, param="tools")


def _signature(tool: Tool, place: int) -> ToolSignature:
    param = f"tools[{place}].function.parameters"
    parameters = check_schema(tool.function.parameters or {}, param)
    if not parameters:
        parameters = {"type": "object", "properties": {}, "additionalProperties": False}
    kind = parameters.get("type", "object")
    if kind != "object":
        raise InvalidRequestError(
            f"{param} must be the schema of an object, its type is {kind!r}", param=param
        )
    return ToolSignature(
        name=tool.function.name, parameters={**parameters, "type": "object"}, param=param
    )
