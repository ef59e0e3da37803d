"""What an answer holds: stop strings, limits, defaults, content parts, other clients' bodies."""

import json
from typing import Any

import pytest

from failsoft.records import FinishReason
from tests.engine.fake_engine import FakeEngine
from tests.engine.http.conftest import GREETING
from tests.engine.http.rig import (
    DIGEST,
    MODEL,
    Rig,
    answer,
    events_of,
    ids_of,
    make_served,
    running,
)
from tests.engine.tiny_tokenizer import byte_level_tokenizer


def streamed_text(rig: Rig, **fields: Any) -> tuple[str, str]:
    """Text and finish reason of a streamed chat."""
    *chunks, done = events_of(rig.chat(stream=True, **fields).text)
    assert done == "[DONE]"
    choices = [json.loads(chunk)["choices"][0] for chunk in chunks]
    text = "".join(choice["delta"].get("content", "") for choice in choices)
    return text, choices[-1]["finish_reason"]


def prompt_of(rig: Rig) -> str:
    """The last prompt that reached the engine, control tokens shown."""
    ids = list(rig.engine.submitted[-1].prompt_ids)
    return str(byte_level_tokenizer().decode(ids, skip_special_tokens=False))


@pytest.mark.parametrize("stop", ["ld 🎉, i", ["zzz", "rld"], "🎉", "o wö"])
def test_a_stop_string_ends_the_answer_and_the_request(stop: str | list[str]) -> None:
    """Over several tokens or from inside one: cut before it, and the engine told at once."""
    with running(FakeEngine(lambda request: ids_of(GREETING) * 50, step_s=0.001)) as rig:
        text, reason = streamed_text(rig, stop=stop)
        whole = rig.chat(stop=stop).json()

        cut = min(GREETING.find(each) for each in ([stop] if isinstance(stop, str) else stop[1:]))
        assert (text, reason) == (GREETING[:cut], "stop")
        assert whole["choices"][0]["message"]["content"] == GREETING[:cut]
        assert whole["choices"][0]["finish_reason"] == "stop"
        assert [reason for _, reason in rig.engine.aborted] == [FinishReason.STOP] * 2
        sampled = rig.engine.finished[-1].num_output_tokens
        assert whole["usage"]["completion_tokens"] == sampled
        assert sampled < len(ids_of(GREETING)) + 50


def test_a_held_back_beginning_is_sent_when_the_answer_ends() -> None:
    """The answer ends with what might have become a stop string."""
    with running(FakeEngine(lambda request: answer("done </ans"))) as rig:
        assert streamed_text(rig, stop="</answer>") == ("done </ans", "stop")


def test_the_templates_stop_strings_hold_for_chats_only() -> None:
    """A version made for ``User:`` turns stops there; a raw completion does not."""
    engine = FakeEngine(lambda request: answer("sure\nUser: more"))
    with running(engine, make_served(stop_strings=("\nUser:",))) as rig:
        chat = rig.chat().json()["choices"][0]["message"]["content"]
        raw = rig.post("/v1/completions", json={"prompt": "x"}).json()["choices"][0]["text"]

    assert (chat, raw) == ("sure", "sure\nUser: more")


def test_an_answer_without_text_still_has_a_role_and_a_reason() -> None:
    """The model ends its turn at once."""
    with running(FakeEngine(lambda request: answer(""))) as rig:
        chunk = json.loads(events_of(rig.chat(stream=True).text)[0])["choices"][0]

        assert chunk["delta"] == {"role": "assistant", "content": ""}
        assert chunk["finish_reason"] == "stop"
        assert rig.chat().json()["choices"][0]["message"]["content"] == ""


def test_a_character_cut_by_max_tokens_comes_out_once() -> None:
    """Half an emoji: one replacement character, finish reason length."""
    with running(FakeEngine(lambda request: ids_of("ab€")[:-1])) as rig:
        text, reason = streamed_text(rig, max_tokens=len(ids_of("ab€")) - 1)

    assert (text, reason) == ("ab\ufffd", "length")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_tokens": 5, "max_completion_tokens": 7}, 7),
        ({}, 64),
    ],
)
def test_max_tokens_comes_from_the_caller_then_the_version(
    fields: dict[str, Any], expected: int
) -> None:
    """``max_completion_tokens`` wins, as at OpenAI."""
    served = make_served(generation_defaults={"max_new_tokens": 64})
    with running(FakeEngine(lambda request: answer("ok")), served) as rig:
        assert rig.chat(**fields).status_code == 200
        assert rig.engine.submitted[-1].sampling.max_tokens == expected


def test_absent_max_tokens_never_exceed_the_room_left(rig: Rig) -> None:
    """The version says nothing: 512, or what is left of 512 after the prompt."""
    rig.chat("hi")

    request = rig.engine.submitted[-1]
    assert request.sampling.max_tokens == 512 - len(request.prompt_ids)


def test_sampling_values_come_from_the_caller_then_the_version_then_openai() -> None:
    """A version's temperature 0 is a value, not an absence."""
    served = make_served(generation_defaults={"temperature": 0.0, "top_k": 40})
    with running(FakeEngine(lambda request: answer("ok")), served) as rig:
        rig.chat(top_p=0.5, seed=7, stop_token_ids=[5], priority=-2, cache_salt="tenant")
        given = rig.engine.submitted[-1]
        rig.chat(temperature=1, top_k=None, min_p=0.1, ignore_eos=True)
        other = rig.engine.submitted[-1].sampling

    assert (given.sampling.temperature, given.sampling.top_k) == (0.0, 40)
    assert (given.sampling.top_p, given.sampling.seed) == (0.5, 7)
    assert given.sampling.stop_token_ids == frozenset({5})
    assert (given.priority, given.cache_salt) == (-2, "tenant")
    assert (other.temperature, other.top_k, other.min_p) == (1.0, 40, 0.1)
    assert other.ignore_eos


def test_a_stop_token_is_not_part_of_the_text() -> None:
    """An ordinary token that the caller stops at ends the text before it."""
    ids = ids_of("the end")
    with running(FakeEngine(lambda request: ids)) as rig:
        reply = rig.chat(stop_token_ids=[ids[-1]]).json()["choices"][0]["message"]["content"]

    assert reply == byte_level_tokenizer().decode(ids[:-1])


def test_content_parts_and_developer_turns_reach_the_template(rig: Rig) -> None:
    """Parts are joined by line breaks; developer is OpenAI's new name of system."""
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None},
        {"role": "user", "content": "c"},
    ]

    reply = rig.post("/v1/chat/completions", json={"messages": messages})

    assert reply.status_code == 200
    assert prompt_of(rig) == (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n"
        "<|im_start|>assistant\n<|im_end|>\n<|im_start|>user\nc<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_long_prompts_are_tokenised_like_short_ones() -> None:
    """Past the length that is worth a thread."""
    text = "the quick brown fox " * 400
    with running(FakeEngine(lambda r: answer("ok")), make_served(max_model_len=20_000)) as rig:
        assert rig.chat(text).status_code == 200
        assert text in prompt_of(rig)


def test_bodies_of_other_clients_are_accepted(rig: Rig) -> None:
    """guidellm's, vllm bench's and LangChain's neutral fields change nothing."""
    guidellm: dict[str, Any] = {
        "stop": None,
        "ignore_eos": True,
        "max_tokens": 4,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    bench = {"repetition_penalty": 1.0, "logprobs": None, "temperature": 0.0, "max_tokens": 4}
    langchain = {"n": 1, "logit_bias": {}, "tools": [], "frequency_penalty": 0, "user": "u"}
    harmless = {"metadata": {"a": "b"}, "store": False, "service_tier": "auto", "whatever": 1}

    streamed = events_of(rig.chat(**guidellm).text)
    replies = [rig.chat(**fields) for fields in (bench, langchain, harmless)]

    assert [reply.status_code for reply in replies] == [200, 200, 200]
    counts = [json.loads(event)["usage"]["completion_tokens"] for event in streamed[:-1]]
    assert counts == sorted(counts)
    assert counts[-1] == 4


def test_a_model_without_a_template_answers_completions_only() -> None:
    """A chat gets 400 with a code that says why."""
    with running(FakeEngine(lambda r: answer("ok")), make_served(chat_template=None)) as rig:
        chat = rig.chat()
        raw = rig.post("/v1/completions", json={"model": MODEL, "prompt": "x"})

    assert chat.status_code == 400
    assert chat.json()["error"]["code"] == "no_chat_template"
    assert raw.status_code == 200


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_answer_names_the_version_that_writes_it(stream: bool) -> None:
    """In a header, whole: a caller keeps replies under it, and the fingerprint is its head."""
    with running(FakeEngine(lambda request: answer("Hi."))) as rig:
        reply = rig.chat(stream=stream)

    assert reply.headers["x-failsoft-version"] == DIGEST
    assert DIGEST[:16] in reply.text
