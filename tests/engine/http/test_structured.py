"""Structured output over HTTP, from a model that speaks noise."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import jsonschema
import pytest

from tests.engine.fake_engine import FakeEngine
from tests.engine.http.rig import answer, events_of, ids_of, make_served, running
from tests.engine.http.tiny_server import TinyServer, tiny_server

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 2},
        "score": {"type": ["number", "null"]},
    },
    "required": ["name", "age", "tags"],
}
AS_SCHEMA = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}


@pytest.fixture(scope="module")
def server() -> Iterator[TinyServer]:
    """A random model with room for several requests."""
    with tiny_server(num_kv_blocks=256) as started:
        yield started


def content_of(reply: httpx2.Response) -> tuple[str, str]:
    """Text and finish reason of a whole reply."""
    assert reply.status_code == 200, reply.text
    choice = reply.json()["choices"][0]
    return choice["message"]["content"], choice["finish_reason"]


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": AS_SCHEMA},
        {"response_format": {"type": "json_object", "schema": SCHEMA}},
        {"structured_outputs": {"json": SCHEMA}},
        {"structured_outputs": {"json": json.dumps(SCHEMA)}},
        {"guided_json": SCHEMA},
        {"json_schema": SCHEMA},
    ],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_schema_is_followed_to_its_end(
    server: TinyServer, fields: dict[str, Any], seed: int
) -> None:
    """Under every name it is known by; the reply ends with it, by ``stop``."""
    text, reason = content_of(server.chat(seed=seed, max_tokens=200, **fields))

    assert reason == "stop"
    jsonschema.validate(json.loads(text), SCHEMA)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"structured_outputs": {"choice": ["yes", "no"]}}, {"yes", "no"}),
        ({"guided_choice": ["maybe"]}, {"maybe"}),
        ({"guided_regex": "ab{2}c"}, {"abbc"}),
        ({"structured_outputs": {"regex": "x|y"}}, {"x", "y"}),
        ({"guided_grammar": 'start: "p" | "q"'}, {"p", "q"}),
        ({"grammar": 'root ::= "r"'}, {"r"}),
        ({"structured_outputs": {"grammar": 'root ::= "r"'}}, {"r"}),
    ],
)
def test_other_grammars_are_followed(
    server: TinyServer, fields: dict[str, Any], expected: set[str]
) -> None:
    """Chat and completion alike."""
    body = {"prompt": "hi", "max_tokens": 20, **fields}
    raw = server.client.post("/v1/completions", json=body).json()["choices"][0]

    assert content_of(server.chat(max_tokens=20, **fields))[0] in expected
    assert raw["text"] in expected
    assert raw["finish_reason"] == "stop"


def test_any_json_object_begins_as_one_and_is_cut_by_its_length(server: TinyServer) -> None:
    """With its closing brace ruled out it cannot end; the reason says so."""
    fields: dict[str, Any] = {"max_tokens": 30, "logit_bias": {str(ids_of("}")[0]): -100}}

    text, reason = content_of(server.chat(response_format={"type": "json_object"}, **fields))

    assert (text[0], reason) == ("{", "length")


def test_a_text_response_format_changes_nothing(server: TinyServer) -> None:
    """LangChain and others send it along."""
    plain = content_of(server.chat(seed=1, max_tokens=9))

    assert content_of(server.chat(seed=1, max_tokens=9, response_format={"type": "text"})) == plain


def test_a_stream_joins_to_the_whole_and_choices_differ(server: TinyServer) -> None:
    """With log probabilities, several choices, and the usage at the end."""
    fields: dict[str, Any] = {
        "response_format": AS_SCHEMA,
        "max_tokens": 200,
        "seed": 5,
        "n": 3,
        "logprobs": True,
        "top_logprobs": 2,
    }
    whole = server.chat(**fields).json()["choices"]
    stream = server.chat(stream=True, stream_options={"include_usage": True}, **fields).text

    *chunks, usage, done = events_of(stream)
    texts = ["", "", ""]
    for chunk in map(json.loads, chunks):
        choice = chunk["choices"][0]
        texts[choice["index"]] += choice["delta"].get("content", "")
    assert texts == [choice["message"]["content"] for choice in whole]
    assert len(set(texts)) == 3
    for choice in whole:
        jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMA)
        tokens = [token for entry in choice["logprobs"]["content"] for token in entry["bytes"]]
        assert bytes(tokens).decode() == choice["message"]["content"]
    assert json.loads(usage)["usage"]["completion_tokens"] > 30
    assert done == "[DONE]"


def test_a_stop_string_and_banned_tokens_go_before_the_grammar(server: TinyServer) -> None:
    """The caller asked for them; what is left is cut, and honest."""
    text, reason = content_of(server.chat(response_format=AS_SCHEMA, stop='"age"', max_tokens=200))
    assert '"age"' not in text
    assert reason == "stop"

    banned = {str(token): -100 for token in range(100)}
    assert content_of(server.chat(guided_regex="[a-zA-Z ]{3}", logit_bias=banned, max_tokens=9))


def test_min_tokens_cannot_prolong_a_grammar_that_is_over(server: TinyServer) -> None:
    """Nothing may follow, so the reply ends before it has that many."""
    assert content_of(server.chat(guided_choice=["ab"], min_tokens=15, max_tokens=20)) == (
        "ab",
        "stop",
    )


def test_ignore_eos_cannot_prolong_it_either(server: TinyServer) -> None:
    """Benchmarks send it with everything."""
    assert content_of(server.chat(guided_choice=["ab"], ignore_eos=True, max_tokens=20)) == (
        "ab",
        "stop",
    )


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"guided_regex": "("}, "guided_regex", "unclosed group"),
    ({"guided_json": {"uniqueItems": True}}, "guided_json", "uniqueItems"),
    ({"guided_json": "{"}, "guided_json", "not valid JSON"),
    ({"guided_choice": []}, "guided_choice", "1..10000"),
    ({"guided_choice": "yes"}, "guided_choice", "list"),
    ({"guided_grammar": "start: ("}, "guided_grammar", "Expected"),
    ({"guided_whitespace_pattern": " *"}, "guided_whitespace_pattern", "not supported"),
    ({"response_format": "json"}, "response_format", ""),
    ({"response_format": {"type": "xml"}}, "response_format.type", "json_schema"),
    ({"response_format": {"type": "json_schema"}}, "response_format", "schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        "response_format",
        "schema",
    ),
    (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"schema": {"type": "integer", "minimum": 2, "maximum": 1}},
            }
        },
        "response_format",
        "minimum (2)",
    ),
    ({"response_format": AS_SCHEMA, "guided_regex": "a"}, "guided_regex", "one of them"),
    (
        {"structured_outputs": {"regex": "a", "choice": ["b"]}},
        "structured_outputs.choice",
        "one of them",
    ),
    (
        {"structured_outputs": {"whitespace_pattern": " "}},
        "structured_outputs.whitespace_pattern",
        "",
    ),
]


def test_bad_ones_are_refused_while_others_run(server: TinyServer) -> None:
    """Each names its field and what is wrong; a stream beside them does not notice."""
    fields = {"seed": 3, "max_tokens": 300, "ignore_eos": True}
    alone = content_of(server.chat("a long one", **fields))
    beside: list[tuple[str, str]] = []
    neighbour = threading.Thread(
        target=lambda: beside.append(content_of(server.chat("a long one", **fields)))
    )
    neighbour.start()

    replies = [(server.chat(**bad), param, word) for bad, param, word in BAD]

    neighbour.join()
    for reply, param, word in replies:
        error = reply.json()["error"]
        assert (reply.status_code, error["param"]) == (400, param), error
        assert word in error["message"]
    assert beside == [alone]


def test_a_model_whose_tokens_are_unknown_says_so() -> None:
    """It serves free text as ever."""
    with running(FakeEngine(lambda request: answer("ok")), make_served(compiler=None)) as rig:
        error = rig.chat(response_format={"type": "json_object"}).json()["error"]

        assert error["param"] == "response_format"
        assert error["code"] == "unsupported_parameter"
        assert rig.chat(response_format={"type": "text"}).status_code == 200
