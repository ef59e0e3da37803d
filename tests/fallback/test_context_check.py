"""Whether a rung can take a request."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.call_records import AttemptOutcome as Outcome
from failsoft.fallback.context_check import lacks, least_tokens, uses_tools


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"messages": [{"role": "user", "content": "x" * 60}]}, 11),
        ({"messages": [{"role": "user", "content": "x" * 60}], "max_tokens": 90}, 100),
        (
            {
                "messages": [{"role": "user", "content": [{"type": "text", "text": "x" * 60}]}],
                "max_tokens": 5,
                "max_completion_tokens": 9,
            },
            19,
        ),
        ({"prompt": [1, 2, 3], "max_tokens": 4}, 7),
        ({"prompt": [[1, 2, 3], [1]], "max_tokens": 4}, 7),
        ({"prompt": ["x" * 12, "y"]}, 3),
        ({"prompt": ""}, 1),
    ],
)
def test_the_estimate_is_low(body: dict[str, Any], tokens: int) -> None:
    """Text by bytes / 6, token ids as they are, output as asked."""
    assert least_tokens(body) == tokens


@given(st.text(max_size=200))
def test_no_text_is_estimated_above_its_bytes(text: str) -> None:
    """A byte-level tokenizer makes at most a token of each byte."""
    assert least_tokens({"prompt": text}) <= len(text.encode("utf-8", "surrogatepass")) + 1


def test_what_is_not_known_stops_nothing() -> None:
    """The endpoint itself refuses what it cannot take."""
    body = {"messages": [{"role": "user", "content": "x" * 10_000}], "tools": [{}]}

    assert lacks(body, context_tokens=None, tools=None, json_schema=None) is None


@pytest.mark.parametrize(
    ("body", "uses"),
    [
        ({"messages": [{"role": "user", "content": "x"}]}, False),
        ({"messages": [], "tools": []}, False),
        ({"messages": [], "tools": [{}]}, True),
        ({"messages": [], "functions": [{}]}, True),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, True),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, True),
        ({"prompt": "x"}, False),
    ],
)
def test_tools_are_seen_in_the_request_and_in_the_talk(body: dict[str, Any], uses: bool) -> None:
    """A tool's result rests on a side effect: no cached reply may stand for it."""
    assert uses_tools(body) == uses


@pytest.mark.parametrize(
    "asked",
    [
        {"response_format": {"type": "json_schema", "json_schema": {}}},
        {"structured_outputs": {"regex": "a"}},
        {"guided_choice": ["a"]},
        {"grammar": "root ::= a"},
    ],
)
def test_a_grammar_under_any_name_needs_an_endpoint_that_follows_it(asked: dict[str, Any]) -> None:
    """One that does not would ignore the field, and answer with anything."""
    body = {"messages": [], **asked}

    skipped = lacks(body, context_tokens=None, tools=None, json_schema=False)

    assert skipped is Outcome.SKIPPED_CAPABILITY
    assert lacks(body, context_tokens=None, tools=None, json_schema=None) is None
