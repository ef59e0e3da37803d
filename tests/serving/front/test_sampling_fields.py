"""The engine's sampling fields through the front: sent on unchanged, and all that comes back."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine.http.real_rig import RealRig, running_real
from tests.engine.http.rig import MODEL
from tests.serving.front.rig import FrontProcess, front, toml

PROMPTS = ["the quick brown fox", "naïve café"]
MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def engine() -> Iterator[RealRig]:
    """The real engine with a tiny random model."""
    with running_real() as started:
        yield started


@pytest.fixture(scope="module")
def before_it(engine: RealRig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontProcess]:
    """A front whose first rung is the engine, and whose second is the cache."""
    settings = toml(f"{engine.url}/v1").replace('model = "m"', f'model = "{MODEL}"')
    with front(tmp_path_factory.mktemp("front"), settings) as process:
        yield process


def as_sent(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without what differs from one call to the next."""
    left = {k: v for k, v in answer.items() if k not in ("id", "created", "model")}
    left["usage"] = {k: v for k, v in left["usage"].items() if k != "prompt_tokens_details"}
    for choice in left["choices"]:
        choice.get("message", {}).pop("refusal", None)  # null; a stream has no word of it
    return left


def is_same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal but for the last digits of their numbers."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) < 1e-4  # another batch rounds in another way
    return bool(one == other)


CHAT: list[dict[str, Any]] = [
    {"n": 3, "seed": 7, "temperature": 1.0, "logprobs": True, "top_logprobs": 2},
    {"presence_penalty": 1.5, "repetition_penalty": 1.3, "logit_bias": {"40": 5}},
    {"min_tokens": 6, "stop": ["e"], "include_stop_str_in_output": True},
    {"continue_final_message": True, "chat_template_kwargs": {"x": 1}, "prompt_logprobs": 1},
]
COMPLETION: list[dict[str, Any]] = [
    {"n": 2, "seed": 7, "temperature": 1.0, "logprobs": 1, "echo": True},
    {"echo": True, "max_tokens": 0, "logprobs": 0},
    {"allowed_token_ids": [40, 41, 42], "prompt_logprobs": 0},
    {"truncate_prompt_tokens": 3, "add_special_tokens": False, "skip_special_tokens": False},
]


@pytest.mark.parametrize("fields", CHAT, ids=lambda fields: "+".join(fields))
def test_a_chat_comes_back_as_the_engine_wrote_it(
    engine: RealRig, before_it: FrontProcess, fields: dict[str, Any]
) -> None:
    """Every choice and every number, each time."""
    body = {"messages": MESSAGES, "max_tokens": 9, "temperature": 0, "ignore_eos": True, **fields}

    through = before_it.post("/chat/completions", **body)
    again = before_it.post("/chat/completions", **body)

    assert through.status_code == 200, through.text
    direct = as_sent(engine.chat(**body))
    assert is_same(as_sent(through.json()), direct)
    assert is_same(as_sent(again.json()), direct)


@pytest.mark.parametrize("fields", COMPLETION, ids=lambda fields: "+".join(fields))
def test_a_completion_comes_back_as_the_engine_wrote_it(
    engine: RealRig, before_it: FrontProcess, fields: dict[str, Any]
) -> None:
    """Two prompts, in order."""
    body = {"max_tokens": 9, "temperature": 0, "ignore_eos": True, **fields}

    through = before_it.client.post(
        "/completions", json={"model": "chat", "prompt": PROMPTS, **body}
    )

    assert through.status_code == 200, through.text
    assert is_same(as_sent(through.json()), as_sent(engine.complete(PROMPTS, **body)))


def test_chunks_with_log_probabilities_go_on_as_they_come(
    engine: RealRig, before_it: FrontProcess
) -> None:
    """Two choices of a stream, and the tokens of each."""
    fields: dict[str, Any] = {
        "n": 2,
        "seed": 3,
        "temperature": 1.0,
        "logprobs": True,
        "max_tokens": 8,
    }
    whole = engine.chat(messages=MESSAGES, ignore_eos=True, **fields)

    _, (*events, done) = before_it.stream(messages=MESSAGES, ignore_eos=True, **fields)

    assert done == "[DONE]"
    came: dict[int, list[Any]] = {0: [], 1: []}
    for choice in (json.loads(event)["choices"][0] for event in events):
        if choice["logprobs"] is not None:
            came[choice["index"]] += choice["logprobs"]["content"]
    assert is_same([came[0], came[1]], [c["logprobs"]["content"] for c in whole["choices"]])


def test_a_bad_field_is_the_callers_error_through_the_front(before_it: FrontProcess) -> None:
    """With the engine's own words and the field's name."""
    reply = before_it.post(messages=MESSAGES, logit_bias={"5": 101})

    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "logit_bias"
