"""Bad input gets 400 with the field's name, before anything runs, and harms nobody."""

import json
import threading
from typing import Any

import httpx2
import pytest

from tests.engine.fake_engine import FakeEngine
from tests.engine.http.rig import MODEL, Rig, answer, events_of, make_served, running

USER = {"role": "user", "content": "hi"}

BAD_CHAT: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [1]}, "messages[0]"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [USER, {"role": "robot", "content": "x"}]}, "messages[1].role"),
    ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content"),
    ({"messages": [{**USER, "tool_calls": [{"id": "x"}]}]}, "messages[0].tool_calls[0].function"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.5}, "top_p"),
    ({"top_k": -1}, "top_k"),
    ({"top_k": 1.5}, "top_k"),
    ({"min_p": 2}, "min_p"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"max_tokens": 5.0}, "max_tokens"),
    ({"max_tokens": "5"}, "max_tokens"),
    ({"max_tokens": 10**30}, "max_tokens"),
    ({"max_completion_tokens": 5000}, "max_completion_tokens"),
    ({"seed": -1}, "seed"),
    ({"seed": 2**64}, "seed"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a", ""]}, "stop"),
    ({"stop": ["x"] * 17}, "stop"),
    ({"stop": [1]}, "stop"),
    ({"stop": 3}, "stop"),
    ({"stop": "x" * 1000}, "stop"),
    ({"stop_token_ids": [10**6]}, "stop_token_ids"),
    ({"stop_token_ids": [True]}, "stop_token_ids[0]"),
    ({"stream": "yes"}, "stream"),
    ({"stream": 1}, "stream"),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"priority": 5000}, "priority"),
    ({"cache_salt": 5}, "cache_salt"),
    ({"model": 5}, "model"),
    ({"ignore_eos": "no"}, "ignore_eos"),
    ({"n": True}, "n"),
    ({"n": 0}, "n"),
    ({"n": 17}, "n"),
    ({"n": 2, "best_of": 1}, "best_of"),
    ({"best_of": 3}, "best_of"),
    ({"top_logprobs": 5}, "top_logprobs"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"function_call": {"name": "f"}}, "function_call"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"reasoning_effort": "high"}, "reasoning_effort"),
    ({"logprobs": 5}, "logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": True}, "top_logprobs"),
    ({"prompt_logprobs": 21}, "prompt_logprobs"),
    ({"presence_penalty": 2.5}, "presence_penalty"),
    ({"presence_penalty": "1"}, "presence_penalty"),
    ({"frequency_penalty": -2.5}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"logit_bias": {"5": 101}}, "logit_bias"),
    ({"logit_bias": {"5": True}}, "logit_bias[5]"),
    ({"logit_bias": {"5": "1"}}, "logit_bias[5]"),
    ({"logit_bias": {"five": 1}}, "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "logit_bias"),
    ({"logit_bias": {"100000": 1}}, "logit_bias"),
    ({"logit_bias": [5]}, "logit_bias"),
    ({"logit_bias": {str(n): 1 for n in range(1025)}}, "logit_bias"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"min_tokens": 9, "max_tokens": 8}, "min_tokens"),
    ({"allowed_token_ids": []}, "allowed_token_ids"),
    ({"allowed_token_ids": [10**6]}, "allowed_token_ids"),
    ({"allowed_token_ids": [2], "min_tokens": 1}, "allowed_token_ids"),
    ({"bad_words": ["no"]}, "bad_words"),
    ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
    ({"truncate_prompt_tokens": 513}, "truncate_prompt_tokens"),
    ({"skip_special_tokens": 1}, "skip_special_tokens"),
    ({"include_stop_str_in_output": "no"}, "include_stop_str_in_output"),
    (
        {"continue_final_message": True, "add_generation_prompt": True},
        "continue_final_message",
    ),
    ({"chat_template_kwargs": {"tokenize": True}}, "chat_template_kwargs"),
    ({"chat_template_kwargs": {"self": 1}}, "chat_template_kwargs"),
    ({"chat_template_kwargs": ["x"]}, "chat_template_kwargs"),
    ({"stop_token_ids": list(range(1025))}, "stop_token_ids"),
    ({"regex": "a"}, "regex"),
    ({"repeat_penalty": 1.1}, "repeat_penalty"),
    ({"chat_template_kwargs": {"a": json.loads("[" * 80 + "]" * 80)}}, "chat_template_kwargs"),
    ({"add_special_tokens": True}, "add_special_tokens"),
]

BAD_COMPLETION: list[tuple[dict[str, Any], str]] = [
    ({"prompt": ""}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [[]]}, "prompt"),
    ({"prompt": [""]}, "prompt"),
    ({"prompt": ["a", ""]}, "prompt"),
    ({"prompt": None}, "prompt"),
    ({}, "prompt"),
    ({"prompt": 5}, "prompt"),
    ({"prompt": ["a", 1]}, "prompt"),
    ({"prompt": [[1], "a"]}, "prompt"),
    ({"prompt": [1.5]}, "prompt"),
    ({"prompt": [True]}, "prompt"),
    ({"prompt": [[True]]}, "prompt"),
    ({"prompt": [-1]}, "prompt"),
    ({"prompt": [10**6]}, "prompt"),
    ({"prompt": [[1], [10**6]]}, "prompt"),
    ({"prompt": ["a"] * 200}, "prompt"),
    ({"prompt": [[[1]]]}, "prompt"),
    ({"prompt": "a", "suffix": "b"}, "suffix"),
    ({"prompt": "a", "tools": [{"type": "function"}]}, "tools"),
    ({"prompt": "a", "logprobs": 21}, "logprobs"),
    ({"prompt": "a", "logprobs": -1}, "logprobs"),
    ({"prompt": "a", "logprobs": True}, "logprobs"),
    ({"prompt": "a", "echo": 1}, "echo"),
    ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
    ({"prompt": "a", "max_tokens": -1, "echo": True}, "max_tokens"),
    ({"prompt": "a", "n": 2, "best_of": 3}, "best_of"),
    ({"prompt": ["a"] * 20, "n": 10}, "n"),
    ({"prompt": "the " * 600}, "prompt"),
    ({"prompt": "a", "max_tokens": 512}, "max_tokens"),
]

BAD_BODIES = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"text"',
    b'{"messages": [{"role": "user", "content": "hi"}], "temperature": NaN}',
    b'{"messages": [{"role": "user", "content": "hi"}], "temperature": -Infinity}',
    b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
    b'{"messages": [{"role": "user", "content": "\xff"}]}',
    b'{"a":' * 100_000,
    b"[" * 100_000 + b"]" * 100_000,
    b'{"seed": ' + b"9" * 100_000 + b"}",
    b'{"pad": "' + b"x" * 1_000_000 + b'"}',
]


def check(reply: httpx2.Response) -> dict[str, Any]:
    """Return the error object of a 400."""
    assert reply.status_code == 400, reply.text
    error: dict[str, Any] = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    return error


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "param"), BAD_CHAT, ids=[str(each[0])[:40] for each in BAD_CHAT]
)
def test_a_bad_chat_field_is_named(
    rig: Rig, fields: dict[str, Any], param: str, stream: bool
) -> None:
    """The same whether it would have been streamed or not; nothing reaches the engine."""
    num_submitted = len(rig.engine.submitted)

    reply = rig.post("/v1/chat/completions", json={"messages": [USER], "stream": stream, **fields})

    error = check(reply)
    assert error["param"] == param
    assert param in error["message"]
    assert len(rig.engine.submitted) == num_submitted


@pytest.mark.parametrize(
    ("fields", "param"), BAD_COMPLETION, ids=[str(each[0])[:40] for each in BAD_COMPLETION]
)
def test_a_bad_completion_field_is_named(rig: Rig, fields: dict[str, Any], param: str) -> None:
    """Prompts of every wrong shape, and what is not supported yet."""
    assert check(rig.post("/v1/completions", json=fields))["param"] == param


@pytest.mark.parametrize("body", BAD_BODIES, ids=range(len(BAD_BODIES)))
def test_a_body_that_is_no_json_object_is_refused(rig: Rig, body: bytes) -> None:
    """Nor UTF-8, nor of a sane depth or size."""
    headers = {"content-type": "application/json"}

    error = check(rig.post("/v1/chat/completions", content=body, headers=headers))

    is_large = len(body) > 1_000_000
    assert error["code"] == ("request_too_large" if is_large else "invalid_json")


def test_a_large_body_without_a_length_is_refused(rig: Rig) -> None:
    """Chunked: refused while it comes, never held whole."""

    def chunks() -> Any:
        yield from [b'{"pad": "'] + [b"x" * 50_000] * 40

    reply = rig.post(
        "/v1/completions", content=chunks(), headers={"content-type": "application/json"}
    )

    assert check(reply)["code"] == "request_too_large"


def test_too_long_a_prompt_says_how_long_it_is(rig: Rig) -> None:
    """With the code that clients look for."""
    error = check(rig.chat("the " * 600))

    assert error["code"] == "context_length_exceeded"
    assert "512" in error["message"]


@pytest.mark.parametrize("value", ["0", "-5", "soon", "1.5", "", "9" * 30, "٣"])
def test_a_bad_deadline_names_its_header(rig: Rig, value: str) -> None:
    """The time left is a positive integer of milliseconds."""
    headers = {"x-failsoft-deadline-ms": value.encode()}

    reply = rig.post("/v1/chat/completions", json={"messages": [USER]}, headers=headers)

    assert check(reply)["param"] == "x-failsoft-deadline-ms"


def test_the_error_never_quotes_the_prompt(rig: Rig) -> None:
    """Only where it is wrong: errors end in logs."""
    secret = "my secret"

    replies = [
        rig.chat(secret, max_tokens="x"),
        rig.post(
            "/v1/chat/completions", json={"messages": [{"role": "user", "content": [secret]}]}
        ),
        rig.post("/v1/completions", json={"prompt": [secret, 5]}),
    ]

    assert all(secret not in reply.text and reply.status_code == 400 for reply in replies)


def test_a_neighbours_stream_does_not_notice() -> None:
    """Every bad request of this file while another caller reads a stream."""
    text = "word " * 300
    engine = FakeEngine(lambda request: answer(text), step_s=0.002)
    replies: list[httpx2.Response] = []
    with running(engine, make_served(max_model_len=4096)) as rig:
        thread = threading.Thread(
            target=lambda: replies.append(rig.chat(stream=True, max_tokens=2000))
        )
        thread.start()
        for fields, _ in BAD_CHAT:
            rig.post("/v1/chat/completions", json={"model": MODEL, "messages": [USER], **fields})
        thread.join()
        assert rig.get("/health/ready").status_code == 200

    *chunks, done = events_of(replies[0].text)
    deltas = [json.loads(chunk)["choices"][0]["delta"].get("content", "") for chunk in chunks]
    assert done == "[DONE]"
    assert "".join(deltas) == text
