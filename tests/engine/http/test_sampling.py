"""Sampling fields over HTTP, on the real engine: what each does, and to whom it does nothing."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.engine.http.real_rig import RealRig, running_real
from tests.engine.http.rig import MODEL, ids_of
from tests.engine.tiny_tokenizer import byte_level_tokenizer, token_id

PROMPT = ids_of("the quick brown fox jumps over the lazy dog")
EOS = token_id(byte_level_tokenizer(), "<|im_end|>")


def texts(answer: dict[str, Any]) -> list[str]:
    """The texts of its choices."""
    return [choice["text"] for choice in answer["choices"]]


def tokens(answer: dict[str, Any]) -> list[str]:
    """The first choice's tokens; it was asked for log probabilities."""
    shown: list[str] = answer["choices"][0]["logprobs"]["tokens"]
    return shown


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 1e-9},
        {"temperature": 1.0, "top_p": 1e-9},
        {"temperature": 1.0, "top_k": 1},
        {"temperature": 1.0, "min_p": 1.0},
    ],
    ids=str,
)
def test_extreme_values_equal_greedy(real: RealRig, fields: dict[str, float]) -> None:
    """None divides by zero, and none leaves the likeliest token out."""
    greedy = real.complete(PROMPT, max_tokens=20, ignore_eos=True)

    extreme = real.complete(PROMPT, max_tokens=20, ignore_eos=True, **fields)

    assert texts(extreme) == texts(greedy)


def test_four_choices_under_a_seed_are_the_same_four_under_load(real: RealRig) -> None:
    """Alone, again, and among twenty others; each differs from its siblings."""
    fields = {"n": 4, "seed": 7, "temperature": 1.0, "max_tokens": 16, "ignore_eos": True}

    first, again = real.complete(PROMPT, **fields), real.complete(PROMPT, **fields)
    with real.load(20):
        busy = real.complete(PROMPT, **fields)

    assert texts(first) == texts(again) == texts(busy)
    assert len(set(texts(first))) == 4
    assert [choice["index"] for choice in first["choices"]] == [0, 1, 2, 3]


def test_a_preempted_choice_draws_the_same_noise() -> None:
    """A pool for little more than two choices of four: preempted, computed again, the same."""
    fields = {"n": 4, "seed": 7, "temperature": 1.0, "max_tokens": 60, "ignore_eos": True}
    with running_real() as roomy:
        expected = roomy.complete(PROMPT, **fields, logprobs=1)
    with running_real(num_blocks=36) as small:
        answer = small.complete(PROMPT, **fields, logprobs=1)
        assert small.engine.stats().preemptions_total > 0

    assert texts(answer) == texts(expected)
    for one, other in zip(answer["choices"], expected["choices"], strict=True):
        assert one["logprobs"]["token_logprobs"] == pytest.approx(
            other["logprobs"]["token_logprobs"], abs=1e-4
        )


def test_choices_of_several_prompts_come_prompt_by_prompt(real: RealRig) -> None:
    """Index 0 and 1 are the first prompt's; a prompt's tokens count once for its choices."""
    prompts = [PROMPT, PROMPT[:9]]
    fields = {"seed": 1, "temperature": 1.0, "max_tokens": 8, "ignore_eos": True, "n": 2}

    together = real.complete(prompts, **fields)
    alone = [real.complete(prompt, **fields) for prompt in prompts]

    assert texts(together) == [*texts(alone[0]), *texts(alone[1])]
    usage = together["usage"]
    assert usage["prompt_tokens"] == len(PROMPT) + 9
    assert usage["completion_tokens"] == 4 * 8
    assert usage["prompt_tokens_details"]["cached_tokens"] <= usage["prompt_tokens"]


def test_choices_share_the_blocks_of_their_prompt(real: RealRig) -> None:
    """Three of four find the prompt computed; the usage tells of the first alone."""
    prompt = [5 + n % 200 for n in range(101)]
    hits = real.engine.stats().prefix_hit_tokens_total

    answer = real.complete(prompt, n=4, max_tokens=2, temperature=1.0)

    assert real.engine.stats().prefix_hit_tokens_total - hits == 3 * 100
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_each_choice_of_a_streamed_chat_has_its_own_role_and_end(real: RealRig) -> None:
    """Deltas of several choices come mixed; joined by index they are the whole answers."""
    fields: dict[str, Any] = {
        "n": 3,
        "seed": 4,
        "temperature": 1.0,
        "max_tokens": 12,
        "ignore_eos": True,
    }
    messages = [{"role": "user", "content": "hello"}]

    chunks = real.stream("/v1/chat/completions", messages=messages, **fields)
    whole = real.chat(messages=messages, **fields)

    for index, choice in enumerate(whole["choices"]):
        own = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert [part["delta"].get("role") for part in own].count("assistant") == 1
        assert own[0]["delta"]["role"] == "assistant"
        assert own[-1]["finish_reason"] == "length"
        text = "".join(part["delta"].get("content", "") for part in own)
        assert text == choice["message"]["content"]


def test_a_bias_of_100_says_nothing_else_and_of_minus_100_never(real: RealRig) -> None:
    """Keys are strings of token ids."""
    token = ids_of("the")[0]
    forced = real.complete(PROMPT, max_tokens=5, logit_bias={str(token): 100})
    greedy = real.complete(PROMPT, max_tokens=8, logprobs=0, ignore_eos=True)
    first = byte_level_tokenizer()
    id_of = {first.decode([n]): n for n in range(320)}
    said = [id_of[text] for text in tokens(greedy) if text in id_of]

    banned = real.complete(
        PROMPT,
        max_tokens=8,
        logprobs=0,
        ignore_eos=True,
        logit_bias={str(number): -100 for number in said},
    )

    assert texts(forced) == [first.decode([token] * 5)]
    assert said
    assert not set(tokens(banned)) & {first.decode([number]) for number in said}


def test_penalties_of_the_output_do_not_see_the_prompt(real: RealRig) -> None:
    """Presence and frequency count what was said; repetition reads the prompt too."""
    ids = ids_of("ababababab")
    bias = {str(ids[0]): 60, str(ids_of("q")[0]): 50}
    fields: dict[str, Any] = {"max_tokens": 1, "logit_bias": bias}

    output_only = real.complete(ids, **fields, presence_penalty=2, frequency_penalty=2)
    repetition = real.complete(ids, **fields, repetition_penalty=2)
    varied = real.complete(ids, max_tokens=30, ignore_eos=True, logprobs=0, repetition_penalty=9)

    assert texts(real.complete(ids, **fields)) == texts(output_only) == ["a"]
    assert texts(repetition) == ["q"]
    assert len(set(tokens(varied))) > 25


def test_ignore_eos_gives_exactly_max_tokens(real: RealRig) -> None:
    """With a model that wants to end at once."""
    eager = {"logit_bias": {str(EOS): 100}, "max_tokens": 9}

    ended = real.complete(PROMPT, **eager)
    ignored = real.complete(PROMPT, **eager, ignore_eos=True, stop=None)

    assert (ended["choices"][0]["finish_reason"], texts(ended)) == ("stop", [""])
    assert ended["usage"]["completion_tokens"] == 1
    assert ignored["choices"][0]["finish_reason"] == "length"
    assert ignored["usage"]["completion_tokens"] == 9


def test_min_tokens_holds_off_the_end_the_stop_tokens_and_the_stop_strings(
    real: RealRig,
) -> None:
    """A model that wants to end, and a stop string in the text before the least length."""
    eager = {"logit_bias": {str(EOS): 100}, "max_tokens": 9}
    text = texts(real.complete(PROMPT, max_tokens=12, ignore_eos=True))[0]
    stop = text[1:4]

    late = real.complete(PROMPT, **eager, min_tokens=5)
    early = real.complete(PROMPT, max_tokens=12, ignore_eos=True, stop=stop)
    held_off = real.complete(PROMPT, max_tokens=12, ignore_eos=True, stop=stop, min_tokens=12)

    assert late["usage"]["completion_tokens"] == 6
    assert late["choices"][0]["finish_reason"] == "stop"
    assert texts(early) == [text[: text.index(stop)]]
    assert texts(held_off) == [text]


def test_only_allowed_tokens_are_sampled(real: RealRig) -> None:
    """At any temperature; another row of the batch is free."""
    allowed = ids_of("abc")
    with real.load(3):
        answer = real.complete(
            PROMPT, allowed_token_ids=allowed, max_tokens=40, temperature=2.0, seed=1
        )

    assert set(texts(answer)[0]) == set("abc")


def test_a_stop_string_may_stay_in_the_text(real: RealRig) -> None:
    """VLLM's include_stop_str_in_output, for strings and for the caller's own stop tokens."""
    plain = real.complete(PROMPT, max_tokens=20, ignore_eos=True, logprobs=0)
    text = texts(plain)[0]
    stop = text[5:8]
    number = ids_of("z")[0]
    fields = {"max_tokens": 20, "include_stop_str_in_output": True}

    by_text = real.complete(PROMPT, ignore_eos=True, stop=stop, **fields)
    by_token = real.complete(
        PROMPT, stop_token_ids=[number], logit_bias={str(number): 100}, **fields
    )

    assert texts(by_text) == [text[: text.index(stop) + len(stop)]]
    assert texts(by_token) == ["z"]
    assert by_token["choices"][0]["finish_reason"] == "stop"


def test_special_tokens_are_shown_where_asked(real: RealRig) -> None:
    """They are hidden by default."""
    fields = {"allowed_token_ids": [0], "max_tokens": 2}

    assert texts(real.complete(PROMPT, **fields)) == [""]
    shown = real.complete(PROMPT, **fields, skip_special_tokens=False)
    assert texts(shown) == ["<|endoftext|><|endoftext|>"]


def test_a_prompt_is_cut_from_the_left_where_asked(real: RealRig) -> None:
    """The same answer as to the end of the prompt; -1 keeps what fits beside max_tokens."""
    long = [5 + n % 200 for n in range(600)]

    cut = real.complete(long, max_tokens=6, truncate_prompt_tokens=20)
    fitting = real.complete(long, max_tokens=6, truncate_prompt_tokens=-1)

    assert texts(cut) == texts(real.complete(long[-20:], max_tokens=6))
    assert cut["usage"]["prompt_tokens"] == 20
    assert fitting["usage"]["prompt_tokens"] == 506


def test_a_last_message_is_continued(real: RealRig) -> None:
    """Its turn stays open; as a raw prompt it reads the same."""
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "the quick"},
    ]
    raw = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nthe quick"

    chat = real.chat(messages=messages, continue_final_message=True, max_tokens=8)
    closed = real.chat(messages=messages, add_generation_prompt=False, max_tokens=8)

    assert chat["choices"][0]["message"]["content"] == texts(real.complete(raw, max_tokens=8))[0]
    expected = real.complete(raw + "<|im_end|>\n", max_tokens=8)
    assert closed["choices"][0]["message"]["content"] == texts(expected)[0]


def test_a_raw_prompt_may_leave_special_tokens_out(real: RealRig) -> None:
    """This tokenizer adds none, so nothing changes; the field is taken."""
    plain = real.complete("the fox", max_tokens=3)

    assert texts(real.complete("the fox", max_tokens=3, add_special_tokens=False)) == texts(plain)


def test_a_high_priority_overtakes_and_the_preempted_finish_unchanged() -> None:
    """Two long answers fill the pool; one sent later, but more urgent, ends before them."""
    low = {"max_tokens": 200, "ignore_eos": True, "priority": 5}
    prompts = [[5 + n + shift for n in range(20)] for shift in (0, 60)]
    urgent = [200 + n for n in range(40)]
    with running_real(num_blocks=80, aging_s=1000.0) as rig:
        alone = [texts(rig.complete(prompt, **low)) for prompt in prompts]
        ends: dict[str, float] = {}

        def ask(name: str, prompt: list[int], **fields: Any) -> dict[str, Any]:
            answer = rig.complete(prompt, **fields)
            ends[name] = time.monotonic()
            return answer

        with ThreadPoolExecutor(3) as pool:
            jobs = [pool.submit(ask, f"low{n}", p, **low) for n, p in enumerate(prompts)]
            while rig.engine.stats().num_running < 2:
                time.sleep(0.001)
            high = pool.submit(ask, "high", urgent, max_tokens=30, ignore_eos=True, priority=-5)
            answers = [texts(job.result()) for job in jobs]
            high.result()
        assert rig.engine.stats().preemptions_total > 0

    assert answers == alone
    assert ends["high"] < max(ends["low0"], ends["low1"])


def test_a_request_that_leaves_nothing_to_sample_is_refused_alone(real: RealRig) -> None:
    """All it allows are tokens that may not end it yet; a neighbour goes on."""
    stuck = {
        "model": MODEL,
        "prompt": PROMPT,
        "max_tokens": 4,
        "min_tokens": 4,
        "allowed_token_ids": [*ids_of("a"), EOS],
        "stop_token_ids": ids_of("a"),
    }
    fields = {"max_tokens": 10, "ignore_eos": True}
    expected = texts(real.complete(PROMPT, **fields))

    with ThreadPoolExecutor(2) as pool:
        neighbour = pool.submit(real.complete, PROMPT, **fields)
        refused = real.client.post("/v1/completions", json=stuck)
        answer = neighbour.result()

    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "allowed_token_ids"
    assert texts(answer) == expected
