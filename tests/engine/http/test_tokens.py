"""Text to tokens and back over HTTP, in vLLM's shapes."""

from typing import Any

import pytest

from tests.engine.fake_engine import FakeEngine
from tests.engine.http.rig import MODEL, Rig, answer, ids_of, make_served, running
from tests.engine.http.test_bad_requests import check
from tests.engine.tiny_tokenizer import TEMPLATE, byte_level_tokenizer

CHAT = [{"role": "user", "content": "hi"}]
OPENED = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("path", ["/tokenize", "/v1/tokenize"])
def test_a_prompt_is_tokenised(rig: Rig, path: str) -> None:
    """At the server's root, where lm-eval asks, and beside the other routes."""
    reply = rig.post(path, json={"model": MODEL, "prompt": "hello wörld"}).json()

    ids = ids_of("hello wörld")
    assert reply == {"count": len(ids), "max_model_len": 512, "tokens": ids, "token_strs": None}


def test_token_strings_come_when_asked_for(rig: Rig) -> None:
    """As the vocabulary spells them, one for each id."""
    reply = rig.post("/tokenize", json={"prompt": "a b", "return_token_strs": True}).json()

    assert reply["token_strs"] == [
        byte_level_tokenizer().id_to_token(token) for token in reply["tokens"]
    ]
    assert "".join(reply["token_strs"]) == "aĠb"


def test_a_chat_is_tokenised_as_the_model_would_get_it(rig: Rig) -> None:
    """The prompt of the answer that follows has as many tokens."""
    reply = rig.post("/tokenize", json={"messages": CHAT}).json()
    rig.chat("hi")

    assert reply["tokens"] == ids_of(OPENED)
    assert list(rig.engine.submitted[-1].prompt_ids) == reply["tokens"]


def test_the_tools_of_a_chat_are_counted(rig: Rig) -> None:
    """What the prompt offers is part of it, unless no call is wanted."""
    tools = [{"type": "function", "function": {"name": "look_up"}}]
    rig.chat("hi", tools=tools)
    asked = list(rig.engine.submitted[-1].prompt_ids)

    with_tools = rig.post("/tokenize", json={"messages": CHAT, "tools": tools}).json()
    without = {"messages": CHAT, "tools": tools, "tool_choice": "none"}

    assert with_tools["tokens"] == asked
    assert rig.post("/tokenize", json=without).json()["tokens"] == ids_of(OPENED)


def test_a_chat_can_be_left_open(rig: Rig) -> None:
    """Without the assistant's turn at the end."""
    reply = rig.post("/tokenize", json={"messages": CHAT, "add_generation_prompt": False}).json()

    assert reply["tokens"] == ids_of("<|im_start|>user\nhi<|im_end|>\n")


def test_a_last_message_can_be_continued(rig: Rig) -> None:
    """As for an answer: it stays open, and no turn is opened behind it."""
    chat = [*CHAT, {"role": "assistant", "content": "Well"}]
    body = {"messages": chat, "continue_final_message": True}

    assert rig.post("/tokenize", json=body).json()["tokens"] == ids_of(f"{OPENED}Well")


def test_tokens_become_text_again(rig: Rig) -> None:
    """Control tokens included, so that nothing is lost on the way."""
    tokens = rig.post("/tokenize", json={"prompt": OPENED}).json()["tokens"]

    for path in ("/detokenize", "/v1/detokenize"):
        assert rig.post(path, json={"tokens": tokens}).json() == {"prompt": OPENED}
    assert rig.post("/detokenize", json={"tokens": []}).json() == {"prompt": ""}


def test_long_texts_are_worked_on_off_the_loop(rig: Rig) -> None:
    """Past the length that is worth a thread."""
    text = "the quick brown fox " * 1000

    tokens = rig.post("/tokenize", json={"prompt": text}).json()["tokens"]

    assert tokens == ids_of(text)
    assert rig.post("/detokenize", json={"tokens": tokens}).json()["prompt"] == text


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": ["a"]}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": CHAT}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ("/tokenize", {"messages": CHAT, "add_special_tokens": True}, "add_special_tokens"),
        ("/tokenize", {"messages": CHAT, "chat_template": "x"}, "chat_template"),
        ("/tokenize", {"prompt": "a", "add_special_tokens": 1}, "add_special_tokens"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
        ("/detokenize", {"tokens": [1, "a"]}, "tokens[1]"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [10**6]}, "tokens"),
    ],
)
def test_bad_bodies_are_named(rig: Rig, path: str, body: dict[str, Any], param: str) -> None:
    """As for an answer."""
    assert check(rig.post(path, json=body))["param"] == param


def test_another_model_is_not_found(rig: Rig) -> None:
    """Its tokens would be other ones."""
    for path, body in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [1]})):
        reply = rig.post(path, json={"model": "gpt-5", **body})
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "model_not_found")


def test_the_tokenizer_is_described(rig: Rig) -> None:
    """What lm-eval probes before it trusts /tokenize: special tokens and the template."""
    info = rig.get("/tokenizer_info").json()

    assert info["bos_token"] == "<|im_start|>"
    assert info["eos_token"] == info["pad_token"] == "<|im_end|>"
    assert info["unk_token"] is None
    assert info["chat_template"] == TEMPLATE
    assert info["model_max_length"] == 512
    assert {"content": "<|endoftext|>", "special": True} in info["added_tokens_decoder"].values()


def test_a_model_without_a_template_tokenises_prompts_only() -> None:
    """A chat gets the same 400 as an answer to it would."""
    with running(FakeEngine(lambda r: answer("ok")), make_served(chat_template=None)) as rig:
        assert check(rig.post("/tokenize", json={"messages": CHAT}))["code"] == "no_chat_template"
        assert rig.post("/tokenize", json={"prompt": "a"}).status_code == 200
        assert rig.get("/tokenizer_info").json()["chat_template"] is None
