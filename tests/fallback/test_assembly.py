"""One whole reply out of chunks."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.fallback.assembly import Assembly
from failsoft.fallback.choice import chunks_of
from failsoft.fallback.reply import Delta


def chunk(delta: dict[str, Any], *, index: int = 0, finish: str | None = None) -> dict[str, Any]:
    """Return one chat chunk."""
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return {"id": "x", "created": 1, "model": "m", "choices": [choice]}


def build(*chunks: dict[str, Any], n: int = 1, kind: str = "chat") -> Assembly:
    """Return an assembly that took *chunks* in."""
    assembly = Assembly(kind=kind, num_choices=n)
    for one in chunks:
        _, failure = assembly.add(one)
        assert failure is None
    return assembly


texts = st.lists(st.text(min_size=1), min_size=1, max_size=8)


@given(st.lists(texts, min_size=1, max_size=3), st.randoms())
def test_choices_come_out_whole_however_their_deltas_mix(
    choices: list[list[str]], rng: Any
) -> None:
    """N choices, interleaved in any order that keeps each one's own."""
    queues = [
        [chunk({"content": text}, index=i) for text in parts] + [chunk({}, index=i, finish="stop")]
        for i, parts in enumerate(choices)
    ]
    mixed = []
    while any(queues):
        mixed.append(rng.choice([q for q in queues if q]).pop(0))

    body = build(*mixed, n=len(choices)).completion()

    assert [c["message"]["content"] for c in body["choices"]] == ["".join(p) for p in choices]


@given(texts)
def test_a_whole_reply_survives_being_streamed_again(parts: list[str]) -> None:
    """What the cache plays back is what was kept."""
    first = build(*[chunk({"content": p}) for p in parts], chunk({}, finish="stop")).completion()

    again = build(*chunks_of(first)).completion()

    assert again == first


def test_tool_calls_survive_being_streamed_again() -> None:
    """Also with two calls at once."""
    deltas = [
        {"tool_calls": [{"index": i, "id": f"t{i}", "function": {"name": "f", "arguments": "{"}}]}
        for i in (0, 1)
    ] + [{"tool_calls": [{"index": i, "function": {"arguments": "}"}}]} for i in (0, 1)]
    first = build(*[chunk(d) for d in deltas], chunk({}, finish="tool_calls")).completion()

    calls = first["choices"][0]["message"]["tool_calls"]
    again = build(*chunks_of(first)).completion()

    assert [(c["id"], c["function"]["arguments"]) for c in calls] == [("t0", "{}"), ("t1", "{}")]
    assert again == first


def test_logprobs_append() -> None:
    """One list over all deltas."""
    pieces = []
    for token in ("a", "b"):
        piece = chunk({"content": token})
        piece["choices"][0]["logprobs"] = {"content": [{"token": token, "logprob": -1}]}
        pieces.append(piece)

    body = build(*pieces, chunk({}, finish="stop")).completion()

    assert [t["token"] for t in body["choices"][0]["logprobs"]["content"]] == ["a", "b"]
    assert len(pieces[0]["choices"][0]["logprobs"]["content"]) == 1, "a chunk was changed"


def test_vllms_prompt_logprobs_survive_being_streamed_again() -> None:
    """At the top of a chat, in each choice of a completion; said once in a stream."""
    prompt = [None, {"5": {"logprob": -1.0}}]
    chat = chunk({"content": "a"}) | {"prompt_logprobs": prompt}
    choice = {"index": 0, "text": "a", "prompt_logprobs": prompt, "finish_reason": None}
    text = {"id": "x", "created": 1, "model": "m", "choices": [choice]}
    end = {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}

    in_chat = build(chat, chunk({"content": "b"}), chunk({}, finish="stop")).completion()
    in_text = build(text, end, kind="completion").completion()

    assert in_chat["prompt_logprobs"] == prompt
    assert in_text["choices"][0]["prompt_logprobs"] == prompt
    assert build(*chunks_of(in_chat)).completion() == in_chat
    assert build(*chunks_of(in_text), kind="completion").completion() == in_text
    assert ["prompt_logprobs" in one for one in chunks_of(in_chat)] == [True, False]


def test_a_completion_is_assembled_too() -> None:
    """``/v1/completions`` has texts, not deltas."""
    choice = {"index": 0, "text": "hi", "finish_reason": "stop"}
    assembly = build({"choices": [choice]}, kind="completion")

    assert assembly.judge_end() is None
    assert assembly.completion()["choices"][0]["text"] == "hi"
    assert assembly.completion()["object"] == "text_completion"


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        ([], "without a finish reason"),
        ([chunk({"content": "x"})], "without a finish reason"),
        ([chunk({}, finish="stop")], "no token sampled"),
        ([chunk({"role": "assistant"}, finish="length")], "no token sampled"),
        ([chunk({"content": "x"}, finish="tool_calls")], None),
        ([chunk({}, finish="tool_calls")], "without a tool call"),
        ([chunk({}, finish="content_filter")], None),
        ([chunk({"refusal": "no"}, finish="stop")], None),
        ([chunk({"reasoning_content": "hm"}, finish="length")], None),
    ],
)
def test_what_is_a_whole_reply(chunks: list[dict[str, Any]], words: str | None) -> None:
    """A refusal and a filtered reply are answers; nothing at all is none."""
    failure = build(*chunks).judge_end()

    assert (failure is None) == (words is None)
    assert words is None or words in str(failure)


def test_every_choice_needs_its_end() -> None:
    """N = 2 and one of them never came."""
    assembly = build(chunk({"content": "x"}, finish="stop"), n=2)

    assert assembly.judge_end() is not None


@pytest.mark.parametrize(
    "bad",
    [
        [],
        "x",
        {},
        {"choices": None},
        {"choices": ["x"]},
        {"choices": [{"index": 1, "delta": {}}]},
        {"choices": [{"index": "0", "delta": {}}]},
        {"choices": [{"index": 0, "delta": "x"}]},
        {"choices": [{"index": 0, "delta": {"content": 5}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": {}}}]},
        {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "error"}]},
        {"error": {"message": "x"}},
    ],
)
def test_what_is_no_chunk_is_a_failure(bad: object) -> None:
    """Never an exception, never an empty success."""
    _, failure = Assembly(kind="chat", num_choices=1).add(bad)

    assert failure is not None


def test_without_usage_each_content_chunk_is_a_token() -> None:
    """A cut stream is charged for what came."""
    assembly = build(chunk({"role": "assistant"}), *[chunk({"content": "x"})] * 5)

    assert (assembly.num_output_tokens, assembly.num_prompt_tokens) == (5, None)


@pytest.mark.parametrize(
    "usage",
    [
        {"completion_tokens": "5"},
        {"completion_tokens": -1},
        {"completion_tokens": True},
        {"completion_tokens": 10**400},
        {"completion_tokens": 2**63, "prompt_tokens_details": ["x"]},
        "many",
    ],
)
def test_nonsense_usage_is_no_usage(usage: object) -> None:
    """An endpoint's counts are checked before they cost anything."""
    assembly = build({**chunk({"content": "x"}), "usage": usage})

    assert assembly.num_output_tokens == 1


def test_a_count_in_mid_stream_is_not_the_last_one() -> None:
    """Some endpoints report from the first chunk on; a cut reply is charged for what came."""
    first = {**chunk({"content": "x"}), "usage": {"prompt_tokens": 5, "completion_tokens": 1}}
    rest = [chunk({"content": "x"})] * 9

    assert build(first, *rest).num_output_tokens == 10
    assert build(first, *rest, chunk({}, finish="stop")).num_output_tokens == 1


def test_no_token_is_a_count_and_not_unknown() -> None:
    """A filtered reply without text cost its prompt: its cost must not come out as 0."""
    usage = {"prompt_tokens": 5, "completion_tokens": 0}
    assembly = build({**chunk({}, finish="content_filter"), "usage": usage})

    assert (assembly.num_prompt_tokens, assembly.num_output_tokens) == (5, 0)


def test_more_cached_tokens_than_prompt_are_capped() -> None:
    """A price must not go negative over an endpoint's slip."""
    usage = {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}}
    assembly = build({**chunk({"content": "x"}), "usage": usage})

    assert assembly.num_cached_tokens == 5


CHUNKS: dict[str, dict[str, Any]] = {
    "chat": {
        **chunk({"content": "x", "role": "assistant", "reasoning": "r"}, finish="stop"),
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "prompt_tokens_details": {}},
    },
    "tools": chunk(
        {"tool_calls": [{"index": 0, "id": "t", "function": {"name": "f", "arguments": "{}"}}]},
        finish="tool_calls",
    ),
    "completion": {
        "choices": [
            {"index": 0, "text": "x", "finish_reason": "stop", "logprobs": {"tokens": ["x"]}}
        ]
    },
}
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)


def spoilt(node: Any, value: object, rng: Any) -> Any:
    """Return *node* with one random place in it, maybe all of it, replaced by *value*."""
    if not node or not isinstance(node, dict | list) or rng.random() < 0.1:
        return value
    if isinstance(node, list):
        place = rng.randrange(len(node))
        return [spoilt(v, value, rng) if i == place else v for i, v in enumerate(node)]
    name = rng.choice(sorted(node))
    return {k: spoilt(v, value, rng) if k == name else v for k, v in node.items()}


@pytest.mark.parametrize("kind", CHUNKS)
@given(JSON_VALUES, st.randoms(use_true_random=False))
def test_whatever_stands_in_a_chunk_it_is_taken_or_refused(
    kind: str, value: object, rng: Any
) -> None:
    """Never an exception: the next rung answers in place of an endpoint that talks nonsense."""
    bad = spoilt(CHUNKS[kind], value, rng)
    assembly = Assembly(kind="completion" if kind == "completion" else "chat", num_choices=1)
    for one in (CHUNKS[kind], bad):
        _, failure = assembly.add(one)
        if failure is None:
            Delta.of(one)

    if assembly.judge_end() is None:
        assert list(chunks_of(assembly.completion()))
    assert assembly.add_completion(bad) is None or str(assembly.num_output_tokens)
