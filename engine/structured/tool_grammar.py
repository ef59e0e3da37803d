"""Grammars in which a reply must call tools, or may only call them right.

A call is written as `failsoft.engine.structured.tool_calls` reads it back. Where a reply must
call, nothing but calls is allowed; where it may, its text is free up to a call's opening tag.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llguidance import LLMatcher

from failsoft.engine.structured.constraint import Constraint, json_schema
from failsoft.engine.structured.json_schema import Schema, narrowed, with_spacing
from failsoft.engine.text.tool_turns import CALL_CLOSE, CALL_OPEN

CALL_TAIL = "}\n" + CALL_CLOSE
"""What stands behind the arguments of a call."""
MAX_CALLS = 8
"""Calls in one reply that must call; a small model would go on until its tokens end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSignature:
    """What a grammar must know of a tool."""

    name: str
    parameters: Mapping[str, Any]
    """JSON schema of an object."""
    param: str
    """Where it was sent."""


def only_calls(tools: Sequence[ToolSignature], *, max_calls: int, param: str) -> Constraint:
    """Return the constraint "1..*max_calls* calls of *tools*, and nothing else".

    A single call ends with its arguments: the rest of its notation would only cost tokens.
    """
    start = f"start: {_calls(max_calls)}" if max_calls > 1 else "start: OPEN body"
    return _constraint([start], tools, param=param)


def calls_or_json(
    tools: Sequence[ToolSignature], schema: Schema, *, max_calls: int, param: str
) -> Constraint:
    """Return the constraint "calls of *tools*, or JSON that *schema* allows"."""
    return _constraint([f"start: {_calls(max_calls)} | answer"], tools, param=param, answer=schema)


def text_with_calls(tools: Sequence[ToolSignature], *, is_parallel: bool, param: str) -> Constraint:
    """Return the constraint "free text, and what an opening tag begins is a call of *tools*".

    Args:
        tools: What may be called.
        is_parallel: Whether a call may be followed by text and calls; else it ends the reply.
        param: The field that asked.
    """
    head = [
        "start: (opened body TAIL)* TEXT" if is_parallel else "start: opened body TAIL | TEXT",
        f"opened[lazy]: TEXT {json.dumps(CALL_OPEN)}",
        "TEXT: /(.|\\n)*/",
    ]
    return _constraint(head, tools, param=param)


def _calls(max_calls: int) -> str:
    return f'OPEN body TAIL ("\\n" OPEN body TAIL){{0,{max_calls - 1}}}'


def _constraint(
    head: list[str],
    tools: Sequence[ToolSignature],
    *,
    param: str,
    answer: Schema | None = None,
) -> Constraint:
    texts = []
    for shape in (narrowed, dict):
        bodies = " | ".join(f"tool_{place}" for place in range(len(tools)))
        lines = [
            *head,
            f"OPEN: {json.dumps(CALL_OPEN)}",
            f'body: "\\n" ({bodies})',
            f"TAIL: {json.dumps(CALL_TAIL)}",
        ]
        for place, tool in enumerate(tools):
            begin = json.dumps(f'{{"name": {json.dumps(tool.name)}, "arguments": ')
            schema = json.dumps(with_spacing(shape(tool.parameters)))
            lines.append(f"tool_{place}: {begin} arguments_{place}")
            lines.append(f"arguments_{place}: %json {schema}")
        if answer is not None:
            lines.append(f"answer: %json {json.dumps(with_spacing(shape(answer)))}")
        texts.append(str(LLMatcher.grammar_from_lark("\n".join(lines))))
    parts = [json_schema(tool.parameters, tool.param) for tool in tools]
    if answer is not None:
        parts.append(json_schema(answer, param))
    return Constraint(texts=tuple(texts), param=param, parts=tuple(parts))
