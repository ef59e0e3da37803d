"""Signs that tokens come while their text is held, for callers that ask for them."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from failsoft.engine.http import answer_schemas
from failsoft.errors import DeadlineExceededError
from tests.engine.fake_engine import FakeEngine
from tests.engine.http.rig import MODEL, Rig, answer, events_of, ids_of, make_served, running
from tests.engine.http.tool_rig import CALL, TOOLS

ON = {"x-failsoft-progress": "on"}
STEP_S = 0.003
"""So slow that hardly two tokens come at once."""


@pytest.fixture(scope="module")
def caller() -> Iterator[Rig]:
    """A server whose model calls a tool, a token at a time."""
    served = make_served(max_model_len=4096)
    said = FakeEngine(lambda request: answer(f"I look. {CALL}"), step_s=STEP_S)
    with running(said, served) as rig:
        yield rig


def chunks_of(rig: Rig, path: str, headers: dict[str, str], **fields: Any) -> list[dict[str, Any]]:
    """Return the chunks of a stream."""
    body = {"model": MODEL, "stream": True, **fields}
    reply = rig.post(path, json=body, headers=headers)
    assert reply.status_code == 200, reply.text
    *chunks, done = events_of(reply.text)
    assert done == "[DONE]"
    return [json.loads(chunk) for chunk in chunks]


def chat(rig: Rig, headers: dict[str, str], **fields: Any) -> list[dict[str, Any]]:
    """Return the chunks of a chat that may call."""
    messages = [{"role": "user", "content": "hi"}]
    return chunks_of(rig, "/v1/chat/completions", headers, messages=messages, tools=TOOLS, **fields)


def counts_of(chunks: list[dict[str, Any]]) -> list[int]:
    return [chunk["usage"]["completion_tokens"] for chunk in chunks if chunk.get("usage")]


@pytest.mark.parametrize("include_usage", [False, True])
def test_a_held_call_shows_its_progress_to_who_asks(caller: Rig, include_usage: bool) -> None:
    """A growing count beside an empty delta; all else is as it is for anybody."""
    options = {"stream_options": {"include_usage": True}} if include_usage else {}
    chunks = chat(caller, ON, **options)
    plain = chat(caller, {}, **options)

    signs = [chunk for chunk in chunks if chunk.get("usage") and chunk["choices"]]
    counts = counts_of(signs)
    assert len(counts) > len(ids_of(CALL)) / 2
    assert counts == sorted(set(counts))
    for each in signs:
        answer_schemas.ChatChunk.model_validate(each)
        assert each["choices"] == [
            {"index": 0, "delta": {}, "logprobs": None, "finish_reason": None}
        ]
        assert "prompt_tokens_details" not in each["usage"]  # not known before the end
    assert said_by([chunk for chunk in chunks if chunk not in signs]) == said_by(plain)
    assert counts_of(plain) == ([len(answer(f"I look. {CALL}"))] if include_usage else [])


def said_by(chunks: list[dict[str, Any]]) -> tuple[str, list[str], list[bool]]:
    """Text, arguments and what usage says, however the chunks are cut."""
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return (
        "".join(choice["delta"].get("content") or "" for choice in choices),
        [
            call["function"]["arguments"]
            for choice in choices
            for call in choice["delta"].get("tool_calls", [])
        ],
        sorted({"usage" in chunk for chunk in chunks}),
    )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"stop": ["abcdefghijklmnop"]}, "abcdefghijklmnoz"),
        ({}, "<|im_start|>" * 20),
        ({"prompt": ["a", "b"], "n": 2, "stop": ["abcdefghijklmnop"]}, "abcdefghijklmnoz"),
    ],
    ids=["stop-string", "hidden-tokens", "choices"],
)
def test_other_holds_show_their_progress_too(fields: dict[str, Any], text: str) -> None:
    """A stop string that has begun, and tokens without any text."""
    with running(FakeEngine(lambda request: answer(text), step_s=STEP_S)) as rig:
        chunks = chunks_of(rig, "/v1/completions", ON, **{"prompt": "a", **fields})

    counts = counts_of(chunks)
    assert len(counts) > 5
    assert counts == sorted(set(counts))
    for each in chunks:
        answer_schemas.CompletionChunk.model_validate(each)
    texts = {
        "".join(c["choices"][0]["text"] for c in chunks if c["choices"][0]["index"] == i)
        for i in range(4 if "n" in fields else 1)
    }
    assert texts == {"" if "<|" in text else text}


def test_a_request_that_fails_before_any_token_still_has_its_status() -> None:
    """No sign goes out for an end without tokens."""
    with running(FakeEngine(lambda request: [DeadlineExceededError(late_s=0.1)])) as rig:
        body = {"model": MODEL, "prompt": "a", "stream": True}
        reply = rig.post("/v1/completions", json=body, headers=ON)

    assert reply.status_code == 504


def test_a_header_that_is_neither_on_nor_off_is_refused(caller: Rig) -> None:
    """It names the header and its values."""
    reply = caller.post(
        "/v1/completions", json={"prompt": "a"}, headers={"x-failsoft-progress": "yes"}
    )

    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "x-failsoft-progress"
    assert "on or off" in reply.json()["error"]["message"]


def test_the_openai_client_reads_past_the_signs(caller: Rig) -> None:
    """Its raw stream and its helper that joins deltas, both with the signs among them."""
    asked: Any = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "hi"}],
        "tools": TOOLS,
        "extra_headers": ON,
    }

    with openai.OpenAI(base_url=f"{caller.url}/v1", api_key="unused", max_retries=0) as client:
        chunks = list(client.chat.completions.create(stream=True, **asked))
        with client.chat.completions.stream(**asked) as stream:
            num_events = sum(1 for _ in stream)
            final = stream.get_final_completion()

    assert sum(chunk.usage is not None for chunk in chunks) > 10
    assert num_events > 10
    [choice] = final.choices
    assert (choice.message.content, choice.finish_reason) == ("I look. ", "tool_calls")
    assert choice.message.tool_calls is not None
    assert choice.message.tool_calls[0].function.arguments == '{"city": "Köln"}'
