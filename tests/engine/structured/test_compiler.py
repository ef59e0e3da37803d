"""Constraints become grammars that say which tokens may come, or a 400 that says why not."""

import contextlib
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLParserLimits

from failsoft.engine.structured import compiler, constraint
from failsoft.engine.structured.compiler import Compiler
from failsoft.engine.structured.constraint import Constraint
from failsoft.engine.structured.token_table import build_table
from failsoft.errors import ForwardError, InvalidRequestError
from tests.engine.http.rig import ids_of, tiny_compiler
from tests.engine.structured.followed import END, follow, is_allowed
from tests.engine.tiny_tokenizer import byte_level_tokenizer

OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
MAP = {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 2}


def schema(value: Any) -> Constraint:
    return constraint.json_schema(value, "response_format")


@pytest.mark.parametrize(
    ("asked", "text", "outcome"),
    [
        (constraint.json_object("p"), '{"a": [1.5, {"b": null}], "c":"x"}', "over"),
        (constraint.json_object("p"), "[1]", "no"),
        (constraint.json_object("p"), '{"a":  1}', "no"),
        (constraint.json_object("p"), '{\n"a": 1}', "no"),
        (constraint.json_object("p"), '{"a": 39e1804}', "no"),
        (schema(OBJECT), '{"a": 12}', "over"),
        (schema(OBJECT), '{"a":12}', "over"),
        (schema(OBJECT), '{"a": 12, "b": 1}', "no"),
        (schema(OBJECT), '{"a": 99999999999999999', "no"),
        (schema(MAP), '{"a": 1, "b": 2}', "over"),
        (schema(MAP), '{"a": 1, "b": 2, "c": 3}', "no"),
        (schema(MAP), '{"a": true}', "no"),
        (schema(MAP), f'{{"{"k" * 65}', "no"),
        (schema({"type": "string", "format": "date"}), '"2024-02-29"', "over"),
        (schema({"type": "string", "format": "date"}), '"2000-02-29"', "over"),
        (schema({"type": "string", "format": "date"}), '"1900-02-29"', "no"),
        (schema({"type": "string", "format": "date"}), '"2023-02-29"', "no"),
        (schema({"type": "string", "format": "date"}), '"2023-02-28"', "over"),
        (schema({"type": "string", "format": "date"}), '"2023-04-31"', "no"),
        (schema({"type": "string", "format": "date"}), '"0000-01-01"', "no"),
        (schema({"type": "string", "format": "date"}), '"1980-12-31"', "over"),
        (schema({"type": "string", "format": "date-time"}), '"2024-02-29T12:00:00Z"', "over"),
        (schema({"type": "string", "format": "date-time"}), '"2023-02-29T12:00:00Z"', "no"),
        (schema({"type": "string", "maxLength": 3}), '"äöü"', "over"),
        (schema({"type": "string", "maxLength": 3}), '"äöüx', "no"),
        (schema({"type": "number"}), "1.234567", "over"),
        (schema({"type": "number"}), "1.2345678", "no"),
        (schema({"type": "number", "maximum": 1e-7, "minimum": 0}), "0.00000005", "may end"),
        (schema({"type": "integer", "minimum": 10**16}), "10000000000000001", "over"),
        (schema(True), "[true]", "over"),
        (constraint.regex(r"\d{3}-\d{4}", "p"), "555-1234", "over"),
        (constraint.regex(r"\d", "p"), "٣", "no"),
        (constraint.regex(r"^a/b+$", "p"), "a/bb", "may end"),
        (constraint.choice(["yes", "no (really)", "🎉"], "p"), "no (really)", "over"),
        (constraint.choice(["yes", "no (really)", "🎉"], "p"), "🎉", "over"),
        (constraint.choice(["a.c"], "p"), "abc", "no"),
        (constraint.grammar('start: "x" NUM\nNUM: /[0-9]+/', "p"), "x1", "may end"),
        (constraint.grammar('root ::= "x" y\ny ::= [0-9] "!"', "p"), "x1!", "over"),
    ],
)
def test_a_grammar_allows_what_was_asked_for_and_nothing_else(
    asked: Constraint, text: str, outcome: str
) -> None:
    """``over``: nothing may follow, so that no token is spent on an end."""
    assert follow(asked, text).partition(":")[0] == outcome


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "object", "properties": {"a": {"not": {}}}}, "not"),
        ({"if": {}, "then": {}}, "if, then"),
        ({"type": "string", "format": "klingon"}, "klingon"),
        ({"type": "integer", "minimum": 5, "maximum": 2}, "Unsatisfiable"),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "Unsatisfiable"),
        ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "Unsatisfiable"),
        (False, "must be a JSON schema"),
        ([], "must be a JSON schema"),
        ({"type": "strin"}, "strin"),
        ({"$ref": "#/$defs/missing"}, "missing"),
        ({"$ref": "https://example.com/schema"}, "example.com"),
        ({"type": "string", "pattern": "("}, "unclosed group"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"oneOf": [{"type": "string"}, {"maxLength": 3}]}, "anyOf"),
        ({"description": "x" * 70_000}, "65536"),
        ({"properties": {f"p{n}": {} for n in range(500)}}, "500 properties"),
        (
            {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
            "no instance that ends",
        ),
    ],
)
def test_a_schema_that_cannot_be_followed_is_refused_by_name(value: Any, word: str) -> None:
    """The caller learns which keyword it is, or what contradicts what."""
    with pytest.raises(InvalidRequestError) as caught:
        tiny_compiler().compile(schema(value))

    assert caught.value.param == "response_format"
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "value", "word"),
    [
        (constraint.regex, "(", "unclosed group"),
        (constraint.regex, "a$b", "lookaround"),
        (constraint.regex, r"(a)\1", "backreferences"),
        (constraint.regex, "a" * 70_000, "65536"),
        (constraint.choice, [], "1..10000"),
        (constraint.choice, [""], "1..10000"),
        (constraint.grammar, "start: (", "Expected"),
        (constraint.grammar, "hello", "hello"),
    ],
)
def test_an_expression_that_is_none_is_refused_with_its_reason(
    make: Any, value: Any, word: str
) -> None:
    """Nothing reaches the engine."""
    with pytest.raises(InvalidRequestError) as caught:
        tiny_compiler().compile(make(value, "guided"))

    assert caught.value.param == "guided"
    assert word in str(caught.value)


def test_a_schema_nested_too_deep_is_refused_before_it_is_compiled() -> None:
    """The compiler's own limit would come as an exception of its parser."""
    value: dict[str, Any] = {}
    for _ in range(100):
        value = {"type": "array", "items": value}

    with pytest.raises(InvalidRequestError, match="nested 100 deep"):
        schema(value)


def test_narrowing_that_leaves_nothing_is_taken_back() -> None:
    """Bounds of one part of allOf may lie beyond the usual ones."""
    value = {"allOf": [{"type": "integer", "minimum": 10**17}, {"type": "integer"}]}

    assert follow(schema(value), str(10**17 + 1)) == "may end"


def test_the_same_constraint_is_compiled_once() -> None:
    """Services send the same schema again and again."""
    compiler = tiny_compiler()

    assert compiler.compile(schema(OBJECT)) is compiler.compile(schema(dict(OBJECT)))


def test_followers_of_one_grammar_do_not_disturb_each_other() -> None:
    """Each request stands at its own place; asking moves none of them."""
    grammar = tiny_compiler().compile(constraint.choice(["ab", "cd"], "p"))
    first, second = grammar.start(), grammar.start()

    first.advance(ids_of("a")[0])

    assert not is_allowed(first.allowed(), ids_of("c")[0])
    assert is_allowed(second.allowed(), ids_of("c")[0])
    assert first.allowed() == first.allowed()


def test_a_token_that_is_not_allowed_is_a_fault_of_its_request() -> None:
    """It can only come of a bug, and must not be taken for a reply."""
    follower = tiny_compiler().compile(constraint.choice(["ab"], "p")).start()

    with pytest.raises(ForwardError) as caught:
        follower.advance(ids_of("x")[0])

    assert caught.value.kind == "grammar"


def test_a_mask_covers_logits_that_are_wider_than_the_tokenizer() -> None:
    """Padding of the vocabulary stands for no bytes, so it is never allowed."""
    num_tokens = byte_level_tokenizer().get_vocab_size()
    follower = tiny_compiler(9).compile(constraint.regex(".*", "p")).start()

    mask = follower.allowed()

    assert len(mask) == -(-(num_tokens + 9) // 8)
    assert not any(is_allowed(mask, token) for token in range(num_tokens, num_tokens + 9))
    assert is_allowed(mask, END)


def test_objects_that_are_composed_stay_open() -> None:
    """To close one part of an allOf would shut out the properties of the other."""
    parts = [{"properties": {"a": {"const": 1}}}, {"properties": {"b": {"const": 2}}}]
    value = {"type": "object", "allOf": parts, "required": ["a", "b"]}

    assert follow(schema(value), json.dumps({"a": 1, "b": 2})) == "over"
    assert follow(schema(value), json.dumps({"a": 1, "b": 2, "c": 3})) == "over"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=4))
def test_any_text_may_be_a_choice(texts: list[str]) -> None:
    """Whatever it means in a regex or in a grammar."""
    for text in texts:
        assert follow(constraint.choice(texts, "p"), text) in ("over", "may end")


_WORDS = ["type", "properties", "required", "items", "anyOf", "$ref", "enum", "minimum", "#", "a"]
_JSON = st.recursive(
    st.sampled_from([None, True, 1, -0.5, "object", "#", "(", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_WORDS), inner),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(_JSON)
def test_no_json_makes_more_than_a_400(value: object) -> None:
    """What is malformed is refused in one line, and never raises anything else."""
    error = ""
    try:
        tiny_compiler().compile(schema(value))
    except InvalidRequestError as exc:
        error = str(exc)

    assert "\n" not in error


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab/\\()[]{}|*+?.^$ \n\"'#-0,<>%@:é&~", max_size=10))
def test_no_expression_makes_more_than_a_400(pattern: str) -> None:
    """Nor can one break out of the grammar that it stands in."""
    for make in (constraint.regex, constraint.grammar):
        with contextlib.suppress(InvalidRequestError):
            tiny_compiler().compile(make(pattern, "p"))


def test_what_many_replies_found_out_of_a_grammar_does_not_use_it_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All replies share it, and it is limited: once it failed every reply to come."""
    monkeypatch.setattr(compiler, "_LIMITS", LLParserLimits(max_lexer_states=3000))
    grammar = small_compiler().compile(constraint.regex("(a|b)*a(a|b){40}", "p"))
    letters, draw = [ids_of("a")[0], ids_of("b")[0]], random.Random(1)
    early = grammar.start()
    early.advance(letters[0])

    for _ in range(40):
        follower = grammar.start()
        for _ in range(60):
            assert any(follower.allowed())
            follower.advance(draw.choice(letters))

    for _ in range(60):
        assert early.allowed() == early.allowed()
        early.advance(letters[1])


def test_a_reply_that_uses_a_grammar_up_by_itself_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """To begin again would end the same way."""
    monkeypatch.setattr(compiler, "_LIMITS", LLParserLimits(max_lexer_states=3000))
    grammar = small_compiler().compile(constraint.regex("(a|b)*a(a|b){41}", "p"))
    letters, draw = [ids_of("a")[0], ids_of("b")[0]], random.Random(1)
    follower = grammar.start()

    def go_on() -> None:
        for _ in range(2000):
            follower.allowed()
            follower.advance(draw.choice(letters))

    with pytest.raises(ForwardError, match="too many states") as caught:
        go_on()

    assert caught.value.is_callers_doing


def test_a_long_expression_is_not_quoted_in_full() -> None:
    """A refusal is a line that can be read."""
    with pytest.raises(InvalidRequestError) as caught:
        small_compiler().compile(constraint.regex("(" * 3000, "p"))

    assert len(str(caught.value)) < 500


def small_compiler() -> Compiler:
    """One that no other test shares."""
    tokenizer = byte_level_tokenizer()
    vocab_size = tokenizer.get_vocab_size()
    table = build_table(tokenizer, vocab_size=vocab_size, eos_token_ids=[END])
    return Compiler(table, vocab_size=vocab_size)
