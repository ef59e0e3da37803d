"""Tools and their calls as a chat template reads them, or as plain text for one that cannot.

A template that names the variable ``tools`` gets tools, calls and results in the shape that
Hugging Face templates expect. For any other the tools are described in the system message,
calls are written out as the model is told to write them, and results become a user's turn:
the notation that Hermes began and Qwen took over. Knows nothing of tokens or HTTP.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, TemplateError, meta

from failsoft.engine.text.nesting import depth_of

CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
RESULT_OPEN, RESULT_CLOSE = "<tool_response>", "</tool_response>"

MAX_DEPTH = 32
"""Nesting of arguments that are still read; deeper ones stay text."""

Turn = dict[str, Any]
"""One message, as a template gets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that the assistant made earlier in the chat."""

    call_id: str
    name: str
    arguments: str
    """JSON text."""

    @property
    def parsed_arguments(self) -> Any:
        """The arguments as an object where they are one: templates write them as JSON."""
        try:
            parsed = json.loads(self.arguments)
        except (ValueError, RecursionError):
            return self.arguments
        return parsed if depth_of(parsed) <= MAX_DEPTH else self.arguments

    def as_entry(self) -> dict[str, Any]:
        """Return the call as a template gets it."""
        function = {"name": self.name, "arguments": self.parsed_arguments}
        return {"id": self.call_id, "type": "function", "function": function}

    def written_out(self) -> str:
        """Return the call as a model writes it."""
        body = json.dumps(
            {"name": self.name, "arguments": self.parsed_arguments}, ensure_ascii=False
        )
        return f"{CALL_OPEN}\n{body}\n{CALL_CLOSE}"


def knows_tools(chat_template: str) -> bool:
    """Whether the template reads the variable ``tools``; False for one that cannot be parsed."""
    environment = Environment(  # noqa: S701 - parsed only, and never HTML
        extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals.clear()
    try:
        return "tools" in meta.find_undeclared_variables(environment.parse(chat_template))
    except TemplateError:
        return "tools" in chat_template  # transformers' own tags, such as generation


def written_out(turns: Sequence[Turn], tools: Sequence[Mapping[str, Any]]) -> list[Turn]:
    """Return *turns* in the roles system, user and assistant alone, *tools* described in front.

    Args:
        turns: Messages as a template that knows tools would get them.
        tools: Tools as the caller sent them; with none only calls and results are written out.
    """
    result: list[Turn] = []
    for turn in turns:
        plain = _plain(turn)
        was_result = turn["role"] == "tool" and result and result[-1].get("is_result")
        if was_result:
            # Templates that insist on alternating turns would refuse the second result.
            result[-1]["content"] += "\n" + plain["content"]
        else:
            result.append({**plain, "is_result": turn["role"] == "tool"})
    for turn in result:
        del turn["is_result"]
    return _described(result, tools) if tools else result


def _plain(turn: Turn) -> Turn:
    if turn["role"] == "tool":
        content = f"{RESULT_OPEN}\n{turn['content']}\n{RESULT_CLOSE}"
        return {"role": "user", "content": content}
    calls = turn.get("tool_calls")
    if not calls:
        return dict(turn)
    written = [
        ToolCall(
            call_id=call["id"],
            name=call["function"]["name"],
            arguments=json.dumps(call["function"]["arguments"]),
        ).written_out()
        for call in calls
    ]
    rest = {key: value for key, value in turn.items() if key != "tool_calls"}
    return {**rest, "content": "\n".join([*filter(None, [turn["content"]]), *written])}


def _described(turns: list[Turn], tools: Sequence[Mapping[str, Any]]) -> list[Turn]:
    lines = [json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools]
    text = "\n".join(
        [
            "You may call these tools, one JSON description a line:",
            *lines,
            "To call a tool, write its name and its arguments as JSON between the tags:",
            CALL_OPEN,
            '{"name": "the tool\'s name", "arguments": {"its": "arguments"}}',
            CALL_CLOSE,
            "Results come back between the tags "
            f"{RESULT_OPEN} and {RESULT_CLOSE}. Without need of a tool, just answer.",
        ]
    )
    if turns and turns[0]["role"] == "system":
        first = {**turns[0], "content": f"{turns[0]['content']}\n\n{text}"}
        return [first, *turns[1:]]
    return [{"role": "system", "content": text}, *turns]
