"""Log probabilities over HTTP: OpenAI's two shapes, vLLM's third, and the numbers in them."""

from typing import Any

import pytest

from failsoft.engine.text.token_text import TokenTexts
from tests.engine.fake_engine import FakeEngine
from tests.engine.http.real_rig import RealRig, log_softmax
from tests.engine.http.rig import ids_of, running
from tests.engine.tiny_tokenizer import byte_level_tokenizer

TOLERANCE = 1e-4
PROMPT = ids_of("the quick brown fox jumps over the lazy dog. the quick brown fox")


def decode(ids: list[int]) -> str:
    """Their text, special tokens hidden."""
    return str(byte_level_tokenizer().decode(ids))


def text_of(logprobs: list[dict[str, Any]]) -> str:
    """What the bytes of a chat's tokens read."""
    return bytes(byte for entry in logprobs for byte in entry["bytes"]).decode(errors="replace")


@pytest.mark.parametrize("is_busy", [False, True], ids=["alone", "under load"])
def test_an_echoed_prompt_is_scored_like_a_plain_forward(real: RealRig, is_busy: bool) -> None:
    """lm-eval's loglikelihood: echo, logprobs 1, one token; prompts in the prefix cache already."""
    prompts = [PROMPT[:n] for n in (1, 2, 17, len(PROMPT))]
    real.complete(prompts, max_tokens=4)
    fields = {"max_tokens": 1, "logprobs": 1, "echo": True}

    if is_busy:
        with real.load(8, echo=True, logprobs=2):
            answer = real.complete(prompts, **fields)
    else:
        answer = real.complete(prompts, **fields)

    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    for prompt, choice in zip(prompts, answer["choices"], strict=True):
        found = choice["logprobs"]
        table = log_softmax(prompt)
        assert [len(found[name]) for name in found] == [len(prompt) + 1] * 4
        assert found["token_logprobs"][0] is found["top_logprobs"][0] is None
        for place in range(1, len(prompt)):
            row = table[place - 1]
            own, top = found["token_logprobs"][place], found["top_logprobs"][place]
            assert abs(own - float(row[prompt[place]])) < TOLERANCE
            assert abs(max(top.values()) - float(row.max())) < TOLERANCE
            assert top[found["tokens"][place]] == own
        assert abs(found["token_logprobs"][-1] - float(table[-1].max())) < TOLERANCE
        assert choice["text"].startswith(decode(prompt))
        for token, offset in zip(found["tokens"][:-1], found["text_offset"], strict=False):
            assert choice["text"][offset:].startswith(token)
    assert answer["usage"]["prompt_tokens"] == sum(map(len, prompts))


def test_an_echo_alone_samples_nothing(real: RealRig) -> None:
    """max_tokens 0: the prompt, its log probabilities, and no output in the usage."""
    answer = real.complete("the fox", max_tokens=0, echo=True, logprobs=0)

    (choice,) = answer["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("the fox", "length")
    assert choice["logprobs"]["tokens"] == [decode([token]) for token in ids_of("the fox")]
    assert answer["usage"]["completion_tokens"] == 0
    with_token = real.complete("the fox", max_tokens=1, echo=True, logprobs=0)["choices"][0]
    assert with_token["logprobs"]["token_logprobs"][:-1] == pytest.approx(
        choice["logprobs"]["token_logprobs"], abs=TOLERANCE
    )


def test_an_echo_without_logprobs_is_the_prompt_as_it_was_sent(real: RealRig) -> None:
    """For each of its choices; the tokens' own text where ids were sent."""
    sent = real.complete("the fox", max_tokens=3, echo=True, n=2)["choices"]
    as_ids = real.complete(ids_of("the fox"), max_tokens=3, echo=True)["choices"][0]

    assert all(choice["text"].startswith("the fox") for choice in sent)
    assert as_ids["text"] == sent[0]["text"]
    assert sent[0]["logprobs"] is None


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "stream"])
def test_a_chats_tokens_come_with_their_bytes(real: RealRig, is_streamed: bool) -> None:
    """Tokens, not characters: the bytes joined are the text, however it is cut into chunks."""
    fields: dict[str, Any] = {
        "logprobs": True,
        "top_logprobs": 3,
        "max_tokens": 24,
        "ignore_eos": True,
    }
    if is_streamed:
        messages = [{"role": "user", "content": "hello"}]
        chunks = real.stream("/v1/chat/completions", messages=messages, **fields)
        choices = [chunk["choices"][0] for chunk in chunks]
        text = "".join(choice["delta"].get("content", "") for choice in choices)
        parts = [choice["logprobs"]["content"] for choice in choices if choice["logprobs"]]
        content = [entry for part in parts for entry in part]
    else:
        (choice,) = real.chat(**fields)["choices"]
        text, content = choice["message"]["content"], choice["logprobs"]["content"]
        assert choice["logprobs"]["refusal"] is None

    assert len(content) == 24
    for entry in content:
        assert set(entry) == {"token", "logprob", "bytes", "top_logprobs"}
        top = [other["logprob"] for other in entry["top_logprobs"]]
        assert len(top) == 3
        assert top == sorted(top, reverse=True)
        assert entry["logprob"] == top[0], "greedy takes the likeliest"
    special = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}
    shown = [entry for entry in content if entry["token"] not in special]
    assert text_of(shown) == text


def test_the_chosen_token_stands_among_the_likeliest(real: RealRig) -> None:
    """Of a noisy, penalised answer: log probabilities are the model's own all the same."""
    fields = {"temperature": 1.8, "seed": 3, "repetition_penalty": 1.5, "logit_bias": {"9": 5}}

    answer = real.complete(PROMPT, max_tokens=12, logprobs=2, ignore_eos=True, **fields)

    found = answer["choices"][0]["logprobs"]
    row = log_softmax(PROMPT)[-1]
    likeliest = sorted(found["top_logprobs"][0].values(), reverse=True)[:2]
    assert likeliest == pytest.approx(row.topk(2).values.tolist(), abs=TOLERANCE)
    for token, own, top in zip(
        found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True
    ):
        assert top[token] >= own
        assert 2 <= len(top) <= 3


def test_vllms_prompt_logprobs_are_by_token_id(real: RealRig) -> None:
    """Null first; rank and text of each; beside the choices in a chat, in a stream once."""
    ids = ids_of("the fox")
    (choice,) = real.complete(ids, prompt_logprobs=1, max_tokens=2)["choices"]
    chat = real.chat(prompt_logprobs=0, max_tokens=2)
    chunks = real.stream("/v1/completions", prompt=ids, prompt_logprobs=1, max_tokens=2)

    first, *rest = choice["prompt_logprobs"]
    table = log_softmax(ids)
    assert first is None
    for place, entry in enumerate(rest):
        own, row = entry[str(ids[place + 1])], table[place]
        assert abs(own["logprob"] - float(row[ids[place + 1]])) < TOLERANCE
        assert own["rank"] == int((row > row[ids[place + 1]]).sum()) + 1
        assert own["decoded_token"] == decode([ids[place + 1]])
        assert entry[str(int(row.argmax()))]["rank"] == 1
    assert choice["logprobs"] is None
    assert len(chat["prompt_logprobs"]) == chat["usage"]["prompt_tokens"]
    told = [chunk["choices"][0].get("prompt_logprobs") for chunk in chunks]
    assert [len(one) for one in told if one is not None] == [len(ids)]


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "stream"])
def test_tokens_behind_a_stop_string_have_none(real: RealRig, is_streamed: bool) -> None:
    """One for each token of the text that is left, whatever was computed and held back."""
    plain = real.complete(PROMPT, max_tokens=30, logprobs=0, ignore_eos=True)["choices"][0]
    offsets, text = plain["logprobs"]["text_offset"], plain["text"]
    place = next(n for n in range(9, 30) if len(text[offsets[n] : offsets[n] + 4]) == 4)
    stop = text[offsets[place] : offsets[place] + 4]
    cut = text.index(stop)
    fields = {"max_tokens": 30, "logprobs": 0, "ignore_eos": True, "stop": stop}

    if is_streamed:
        chunks = real.stream("/v1/completions", prompt=PROMPT, **fields)
        parts = [chunk["choices"][0] for chunk in chunks]
        shown = "".join(part["text"] for part in parts)
        tokens = [t for part in parts if part["logprobs"] for t in part["logprobs"]["tokens"]]
        where = [o for part in parts if part["logprobs"] for o in part["logprobs"]["text_offset"]]
    else:
        (choice,) = real.complete(PROMPT, **fields)["choices"]
        shown, tokens = choice["text"], choice["logprobs"]["tokens"]
        where = choice["logprobs"]["text_offset"]

    assert shown == text[:cut]
    assert where == [offset for offset in offsets if offset < cut]
    assert tokens == plain["logprobs"]["tokens"][: len(tokens)]


def test_an_answer_without_a_wish_has_no_logprobs(real: RealRig) -> None:
    """And the engine was not asked for any."""
    assert real.chat(max_tokens=2)["choices"][0]["logprobs"] is None
    assert real.complete(max_tokens=2, logprobs=False)["choices"][0]["logprobs"] is None


@pytest.mark.parametrize("text", ["🎉👩‍👩‍👧 日本語", "ab€"[:2] + "🎉"])
def test_forced_bytes_of_emoji_never_show_a_replacement_character(text: str) -> None:
    """Each byte a token of its own; every chunk holds whole characters."""
    ids = [id_of_byte(byte) for byte in text.encode()]
    with running(FakeEngine(lambda request: ids)) as rig:
        reply = rig.chat(stream=True, ignore_eos=True)
        whole = rig.chat(ignore_eos=True).json()

    assert "\\ufffd" not in reply.text
    assert whole["choices"][0]["message"]["content"] == text


def id_of_byte(byte: int) -> int:
    """The token that is one byte alone."""
    texts = TokenTexts(byte_level_tokenizer())
    return next(n for n in range(320) if texts.of(n).data == bytes([byte]))
