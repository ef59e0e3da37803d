"""Tools over HTTP: what must be called is, what may be called is found in the text."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import openai
import pytest
from pydantic import BaseModel, Field

from failsoft.engine.structured.grammar import Grammar
from tests.engine.http.rig import MODEL, Rig, answer, events_of, ids_of
from tests.engine.http.tiny_server import TinyServer, tiny_server
from tests.engine.http.tool_rig import CALL, TOOLS, WEATHER, choice_of, room_for


@pytest.fixture(scope="module")
def server() -> Iterator[TinyServer]:
    """A random model with room for a prompt of tools."""
    with tiny_server(num_kv_blocks=400) as started:
        yield started


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """Answers "ok", and has room for a prompt of tools."""
    with room_for(lambda request: answer("ok")) as started:
        yield started


def joined(stream: str) -> dict[str, Any]:
    """Join a stream's deltas as clients do, and check the order that they rely on."""
    *chunks, done = events_of(stream)
    assert done == "[DONE]"
    content, reason = "", None
    calls: list[dict[str, Any]] = []
    for place, chunk in enumerate(map(json.loads, chunks)):
        choice = chunk["choices"][0]
        delta, reason = choice["delta"], choice["finish_reason"]
        assert (delta.get("role") == "assistant") == (place == 0)
        content += delta.get("content") or ""
        for piece in delta.get("tool_calls", []):
            if piece["index"] == len(calls):
                assert set(piece) == {"index", "id", "type", "function"}
                assert piece["function"]["arguments"] == ""
                calls.append(json.loads(json.dumps(piece)))
            else:
                assert set(piece) == {"index", "function"}
                calls[-1]["function"]["arguments"] += piece["function"]["arguments"]
    return {"content": content, "calls": calls, "reason": reason}


@pytest.mark.parametrize("seed", range(3))
def test_a_required_call_is_valid_whatever_the_model(server: TinyServer, seed: int) -> None:
    """Content is null, the arguments follow their schema, and the deltas join to them."""
    fields: dict[str, Any] = {
        "tools": TOOLS,
        "tool_choice": "required",
        "seed": seed,
        "max_tokens": 250,
    }
    choice = choice_of(server.chat(**fields, parallel_tool_calls=False))
    stream = joined(server.chat(stream=True, **fields, parallel_tool_calls=False).text)

    assert choice["finish_reason"] == stream["reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    [call] = choice["message"]["tool_calls"]
    [streamed] = stream["calls"]
    assert call["function"] == streamed["function"]
    assert call["type"] == "function"
    arguments = json.loads(call["function"]["arguments"])
    jsonschema.validate(arguments, WEATHER if call["function"]["name"] == "weather" else {})
    assert stream["content"] == ""


def test_a_named_call_is_of_that_tool_and_one(server: TinyServer) -> None:
    """Without parameters there are no arguments."""
    named = {"type": "function", "function": {"name": "now"}}

    choice = choice_of(server.chat(tools=TOOLS, tool_choice=named, max_tokens=200))

    [call] = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "now", "arguments": "{}"}
    assert choice["finish_reason"] == "tool_calls"


def test_a_call_cut_by_its_length_says_so(server: TinyServer) -> None:
    """Clients then know that the arguments are no JSON yet; before them it is text."""
    named = {"type": "function", "function": {"name": "weather"}}
    fields: dict[str, Any] = {"tools": TOOLS, "tool_choice": named, "seed": 1}
    reply = server.chat(max_tokens=250, **fields)
    whole = choice_of(reply)["message"]["tool_calls"][0]
    num_tokens = reply.json()["usage"]["completion_tokens"]

    cut = choice_of(server.chat(max_tokens=num_tokens - 3, **fields))
    begun = choice_of(server.chat(max_tokens=5, **fields))

    assert cut["finish_reason"] == begun["finish_reason"] == "length"
    arguments = cut["message"]["tool_calls"][0]["function"]["arguments"]
    assert whole["function"]["arguments"].startswith(arguments)
    assert whole["function"]["arguments"] != arguments
    assert "tool_calls" not in begun["message"]
    assert CALL.startswith(begun["message"]["content"])


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_call_cut_by_a_stop_string_is_no_finished_call(
    server: TinyServer, is_streamed: bool
) -> None:
    """Its arguments are no JSON; the reason used to be that of a call to be made."""
    named = {"type": "function", "function": {"name": "weather"}}
    fields: dict[str, Any] = {"tools": TOOLS, "tool_choice": named, "stop": ["}"]}

    if is_streamed:
        reason = joined(server.chat(stream=True, max_tokens=250, **fields).text)["reason"]
    else:
        choice = choice_of(server.chat(max_tokens=250, **fields))
        reason = choice["finish_reason"]
        assert "}" not in choice["message"]["tool_calls"][0]["function"]["arguments"]

    assert reason == "stop"


def test_a_second_call_that_is_cut_in_its_head_leaves_no_text(server: TinyServer) -> None:
    """The first is whole, and what the second had begun with is notation, whole or streamed."""
    tools = [{"type": "function", "function": {"name": "f"}}]
    fields: dict[str, Any] = {
        "tools": tools,
        "tool_choice": "required",
        "logit_bias": {"2": -100},  # never end
    }
    one = server.chat(**{**fields, "logit_bias": None}, parallel_tool_calls=False, max_tokens=99)
    fields["max_tokens"] = one.json()["usage"]["completion_tokens"] + 24  # into the second's head

    choice = choice_of(server.chat(**fields))
    stream = joined(server.chat(stream=True, **fields).text)

    assert (choice["finish_reason"], stream["reason"]) == ("length", "length")
    assert len(choice["message"]["tool_calls"]) == len(stream["calls"]) == 1
    assert choice["message"]["content"] is None
    assert stream["content"] == ""


def test_several_calls_at_most_eight(server: TinyServer) -> None:
    """A model that goes on and on is ended by the grammar."""
    tools = [{"type": "function", "function": {"name": "f"}}]
    on = {"2": -100}  # never end
    fields: dict[str, Any] = {
        "tools": tools,
        "tool_choice": "required",
        "max_tokens": 600,
        "logit_bias": on,
    }

    choice = choice_of(server.chat(**fields))

    assert len(choice["message"]["tool_calls"]) == 8
    assert choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("is_parallel", [False, True])
def test_a_reply_is_calls_or_the_json_that_is_asked_for(
    server: TinyServer, is_parallel: bool
) -> None:
    """One call or several."""
    fields: dict[str, Any] = {
        "tools": TOOLS,
        "response_format": {"type": "json_object"},
        "parallel_tool_calls": is_parallel,
        "logit_bias": {str(ids_of("{")[0]): 100, str(ids_of("}")[0]): 100},
        "max_tokens": 20,
    }

    choice = choice_of(server.chat(**fields))

    assert (choice["message"]["content"], choice["finish_reason"]) == ("{}", "stop")


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(
    ("text", "content", "names", "reason"),
    [
        ("It rains.", "It rains.", [], "stop"),
        (CALL, "", ["weather"], "tool_calls"),
        (f"I look.\n{CALL}\n{CALL}", "I look.\n", ["weather", "weather"], "tool_calls"),
        ("<tool_call>broken</tool_call>", "<tool_call>broken</tool_call>", [], "stop"),
        ('<tool_call>\n{"name": "weather"', '<tool_call>\n{"name": "weather"', [], "stop"),
    ],
)
def test_calls_are_found_in_free_text(
    text: str, content: str, names: list[str], reason: str, is_streamed: bool
) -> None:
    """A broken call is honest text; text before a call goes out as content."""
    with room_for(lambda request: answer(text)) as rig:
        if is_streamed:
            got = joined(rig.chat(tools=TOOLS, stream=True).text)
        else:
            choice = choice_of(rig.chat(tools=TOOLS))
            message = choice["message"]
            assert (message["content"] is None) == (not content)
            calls = message.get("tool_calls", [])
            got = {"content": message["content"] or "", "calls": calls}
            got["reason"] = choice["finish_reason"]

    assert [call["function"]["name"] for call in got["calls"]] == names
    assert all(call["function"]["arguments"] == '{"city": "Köln"}' for call in got["calls"])
    assert (got["content"], got["reason"]) == (content, reason)


def test_a_tool_choice_of_none_reads_no_calls_and_offers_no_tools() -> None:
    """What looks like a call is text; the prompt is that of a chat without tools."""
    with room_for(lambda request: answer(CALL)) as rig:
        message = choice_of(rig.chat(tools=TOOLS, tool_choice="none"))["message"]
        rig.chat()

    assert message["content"] == CALL
    offered, plain = (request.prompt_ids for request in rig.engine.submitted)
    assert offered == plain


def test_log_probabilities_of_a_held_call_come_with_its_chunks(
    server: TinyServer,
) -> None:
    """They cannot go out before the text that they belong to."""
    fields: dict[str, Any] = {
        "tools": TOOLS,
        "tool_choice": "required",
        "logprobs": True,
        "max_tokens": 80,
        "parallel_tool_calls": False,
    }

    *chunks, usage, _ = events_of(
        server.chat(stream=True, stream_options={"include_usage": True}, **fields).text
    )

    entries = [
        entry
        for chunk in map(json.loads, chunks)
        for entry in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]
    ]
    assert len(entries) == json.loads(usage)["usage"]["completion_tokens"]


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        ("Free text.", True),
        (f"First {CALL}", True),
        ('<tool_call>\n{"name": "weather", "arguments": {"town"', False),
        ('<tool_call>\n{"name": "moon"', False),
    ],
)
@pytest.mark.parametrize("fields", [{"strict": True}, {"parallel_tool_calls": False}])
def test_a_strict_tool_is_called_right_or_not_at_all(
    rig: Rig, text: str, is_allowed: bool, fields: dict[str, Any]
) -> None:
    """Text stays free; what an opening tag begins must be a call of a tool that is there."""
    tools = [*TOOLS]
    if "strict" in fields:
        function = {"name": "weather", "parameters": WEATHER, "strict": True}
        tools[0] = {"type": "function", "function": function}
        fields = {}
    rig.chat(tools=tools, **fields)
    follower = grammar_of_last(rig).start()

    for token in ids_of(text):
        if not follower.allowed()[token // 8] >> (token % 8) & 1:
            assert not is_allowed
            return
        follower.advance(token)
    assert is_allowed


def test_only_one_call_where_no_two_may_run_at_once(rig: Rig) -> None:
    """The reply ends with it."""
    rig.chat(tools=TOOLS, parallel_tool_calls=False)
    follower = grammar_of_last(rig).start()

    for token in ids_of(f"Look: {CALL}"):
        assert not follower.is_over
        follower.advance(token)

    assert follower.is_over


def test_tools_beside_a_schema_mean_a_call_or_json(rig: Rig) -> None:
    """The answer is the one or the other; both are enforced."""
    wanted = {"type": "json_schema", "json_schema": {"schema": {"enum": ["a"]}}}
    rig.chat(tools=TOOLS, response_format=wanted)
    grammar = grammar_of_last(rig)

    for text in (CALL, '"a"'):
        follower = grammar.start()
        for token in ids_of(text):
            follower.advance(token)


def grammar_of_last(rig: Rig) -> Grammar:
    grammar = rig.engine.submitted[-1].grammar
    assert grammar is not None
    return grammar


class Person(BaseModel):
    """What parse() asks for."""

    name: str = Field(max_length=6)
    age: int


class Lookup(BaseModel):
    """A tool by its model."""

    city: str = Field(max_length=6)


def test_the_openai_client_parses_what_comes(server: TinyServer) -> None:
    """``parse`` with a response format and with strict tools, and ``stream`` with both."""
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0)
    messages: Any = [{"role": "user", "content": "hi"}]

    parsed = client.chat.completions.parse(
        model=MODEL, messages=messages, response_format=Person, max_tokens=200, seed=1
    )
    called = client.chat.completions.parse(
        model=MODEL,
        messages=messages,
        tools=[openai.pydantic_function_tool(Lookup)],
        tool_choice="required",
        parallel_tool_calls=False,
        max_tokens=200,
        seed=1,
    )
    with client.chat.completions.stream(
        model=MODEL, messages=messages, response_format=Person, max_tokens=200, seed=1
    ) as stream:
        streamed = stream.get_final_completion()

    assert isinstance(parsed.choices[0].message.parsed, Person)
    calls = called.choices[0].message.tool_calls
    assert calls is not None
    assert isinstance(calls[0].function.parsed_arguments, Lookup)
    assert streamed.choices[0].message.parsed == parsed.choices[0].message.parsed
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(
            model=MODEL, messages=messages, response_format=Person, max_tokens=3
        )
