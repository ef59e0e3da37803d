"""Schemas and tool calls through the front's ladder, from a real engine's HTTP."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel, Field

from tests.engine.http.rig import MODEL
from tests.engine.http.tiny_server import TinyServer, tiny_server
from tests.serving.front.rig import FrontProcess, front, toml


class Person(BaseModel):
    """What parse() asks for."""

    name: str = Field(max_length=6)
    age: int


TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "maxLength": 6}},
                "required": ["city"],
            },
        },
    }
]
FORCED: dict[str, Any] = {
    "tools": TOOLS,
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "seed": 4,
    "max_tokens": 150,
}


@pytest.fixture(scope="module")
def engine() -> Iterator[TinyServer]:
    """A random model."""
    with tiny_server(num_kv_blocks=256) as started:
        yield started


@pytest.fixture(scope="module")
def over_engine(
    engine: TinyServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FrontProcess]:
    """A front whose only rung is that engine, before the cache."""
    settings = toml(f"{engine.url}/v1").replace('model = "m"', f'model = "{MODEL}"')
    settings = settings.replace("first_token_s = 1", "first_token_s = 4")
    with front(tmp_path_factory.mktemp("structured"), settings) as process:
        yield process


def calls_in(events: list[str]) -> tuple[list[dict[str, Any]], str | None]:
    """Join a stream's tool calls; return them and the finish reason."""
    calls: list[dict[str, Any]] = []
    reason = None
    for event in events[:-1]:
        choice = json.loads(event)["choices"][0]
        reason = choice["finish_reason"]
        for piece in choice["delta"].get("tool_calls", []):
            if piece["index"] == len(calls):
                calls.append({"name": piece["function"]["name"], "arguments": ""})
            calls[piece["index"]]["arguments"] += piece["function"]["arguments"]
    return calls, reason


def test_tool_calls_pass_whole_and_streamed(over_engine: FrontProcess) -> None:
    """The ladder asks for a stream either way, and joins its deltas to the same call."""
    whole = over_engine.post(**FORCED)
    reply, events = over_engine.stream(**FORCED)

    choice = whole.json()["choices"][0]
    [call] = choice["message"]["tool_calls"]
    streamed, reason = calls_in(events)
    assert choice["message"]["content"] is None
    assert choice["finish_reason"] == reason == "tool_calls"
    assert call["type"] == "function"
    assert call["id"].startswith("call_")
    assert streamed == [call["function"]]
    assert set(json.loads(call["function"]["arguments"])) == {"city"}
    assert reply.headers["x-failsoft-rung"] == "a"


def test_a_talk_with_calls_and_results_passes(over_engine: FrontProcess) -> None:
    """Roles and ids reach the engine as they were sent; it would refuse what it cannot read."""
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
    }
    talk = [
        {"role": "user", "content": "Rain?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "yes"},
    ]

    reply = over_engine.post(messages=talk, tools=TOOLS, max_tokens=5, seed=1)

    assert reply.status_code == 200
    assert reply.json()["usage"]["completion_tokens"] == 5


def test_a_reply_with_tools_is_never_served_from_the_cache(over_engine: FrontProcess) -> None:
    """A call has effects outside; a kept one would have them again."""
    for _ in range(2):
        reply = over_engine.post(**FORCED, temperature=0)
        assert reply.headers["x-failsoft-rung"] == "a"
        assert "x-failsoft-age" not in reply.headers


def test_a_refused_schema_is_the_callers_error(over_engine: FrontProcess) -> None:
    """With the engine's own words and field; no other rung is asked."""
    wanted = {"type": "json_schema", "json_schema": {"schema": {"uniqueItems": True}}}

    reply = over_engine.post(response_format=wanted)

    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, "response_format")
    assert "uniqueItems" in error["message"]


def test_the_openai_client_parses_through_the_front(over_engine: FrontProcess) -> None:
    """Response format and strict tool, whole and streamed."""
    client = openai.OpenAI(base_url=over_engine.url, api_key="unused", max_retries=0)
    messages: Any = [{"role": "user", "content": "hi"}]
    asked: Any = {"model": "chat", "messages": messages, "max_tokens": 150, "seed": 1}

    parsed = client.chat.completions.parse(response_format=Person, **asked)
    with client.chat.completions.stream(response_format=Person, **asked) as stream:
        streamed = stream.get_final_completion()
    called = client.chat.completions.parse(
        tools=[openai.pydantic_function_tool(Person)],
        tool_choice="required",
        parallel_tool_calls=False,
        **asked,
    )

    assert isinstance(parsed.choices[0].message.parsed, Person)
    assert streamed.choices[0].message.parsed == parsed.choices[0].message.parsed
    calls = called.choices[0].message.tool_calls
    assert calls is not None
    assert isinstance(calls[0].function.parsed_arguments, Person)
