"""Tools, calls and a talk about them, for the tests of tools over HTTP."""

import contextlib
from typing import Any

import httpx2

from tests.engine.fake_engine import FakeEngine, Script
from tests.engine.http.rig import Rig, make_served, running

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 8},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city"],
}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "now", "description": "The time."}},
]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>'
TOOL_TEMPLATE = (
    "{% if tools %}TOOLS:{% for tool in tools %}{{ tool | tojson }}{% endfor %}\n{% endif %}"
    "{% for message in messages %}[{{ message.role }}]{{ message.content }}"
    "{% for call in message.tool_calls or [] %}"
    "CALL {{ call.function.name }} {{ call.function.arguments | tojson }}{% endfor %}\n"
    "{% endfor %}[assistant]"
)
TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "Rain?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "Köln"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "yes"}]},
]


def room_for(script: Script, **changes: Any) -> contextlib.AbstractContextManager[Rig]:
    """Serve a script with room for a prompt of tools."""
    return running(FakeEngine(script), make_served(max_model_len=4096, **changes))


def choice_of(reply: httpx2.Response) -> dict[str, Any]:
    assert reply.status_code == 200, reply.text
    choice: dict[str, Any] = reply.json()["choices"][0]
    return choice
