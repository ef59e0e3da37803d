"""Tool calls out of text, however it is cut into deltas."""

import json
from collections.abc import Iterable
from typing import NamedTuple
from unittest.mock import ANY

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failsoft.engine.structured.tool_calls import (
    CallArguments,
    CallOpened,
    CallReader,
    Content,
    ForcedCalls,
    FreeCalls,
    Part,
    whole_calls,
)

NAMES = ["weather", "now"]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln", "n": [1, {"a": "}"}]}}\n'
CALL += "</tool_call>"
ARGUMENTS = '{"city": "Köln", "n": [1, {"a": "}"}]}'
NOW = '<tool_call>{"name": "now"}</tool_call>'


class Outcome(NamedTuple):
    text: str
    calls: list[tuple[str, str]]


def read(reader: CallReader, pieces: Iterable[str]) -> Outcome:
    """Read *pieces* to the end; parts must come in an order that a client can follow."""
    parts: list[Part] = []
    for piece in pieces:
        parts += reader.push(piece)
    parts += reader.flush()
    opened = 0
    for part in parts:
        if isinstance(part, CallOpened):
            assert part.index == opened
            opened += 1
        elif isinstance(part, CallArguments):
            assert part.index == opened - 1
        else:
            assert part.text
    assert reader.num_calls == opened
    calls = whole_calls(parts)
    assert len({call["id"] for call in calls}) == len(calls)
    return Outcome(
        "".join(part.text for part in parts if isinstance(part, Content)),
        [(call["function"]["name"], call["function"]["arguments"]) for call in calls],
    )


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("no call", Outcome("no call", [])),
        ("", Outcome("", [])),
        ("  \n", Outcome("  \n", [])),
        (CALL, Outcome("", [("weather", ARGUMENTS)])),
        (f"\n{CALL}\n{NOW}\n", Outcome("", [("weather", ARGUMENTS), ("now", "{}")])),
        (f"I look.\n{CALL}", Outcome("I look.\n", [("weather", ARGUMENTS)])),
        (f"{NOW} and so on", Outcome(" and so on", [("now", "{}")])),
        (
            '<tool_call>[{"name": "now", "parameters": {}}, {"name": "now"}]</tool_call>',
            Outcome("", [("now", "{}"), ("now", "{}")]),
        ),
        (
            '<tool_call>{"name": "now", "arguments": "{\\"a\\": 1}"}</tool_call>',
            Outcome("", [("now", '{"a": 1}')]),
        ),
        ('<tool_call>{"name": "now", "arguments": {}}', Outcome("", [("now", "{}")])),
        (
            '<tool_call>{"name": "now", "arguments": {"a": "\\ud800"}}</tool_call>',
            Outcome("", [("now", '{"a": "\\ud800"}')]),
        ),
    ],
)
def test_free_text_and_calls(text: str, outcome: Outcome) -> None:
    """Blanks around calls belong to neither; a last call may lack its closing tag."""
    assert read(FreeCalls(NAMES), [text]) == outcome
    assert read(FreeCalls(NAMES), text) == outcome


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>not JSON</tool_call>",
        '<tool_call>{"name": "weather", "arguments": {"city": "K',
        '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "now", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "now", "arguments": "{"}</tool_call>',
        '<tool_call>{"name": "now", "arguments": {"a": 1e999}}</tool_call>',
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>[{"name": "now"}, {"name": "unknown"}]</tool_call>',
        "<tool_call>[]</tool_call>",
        "<tool_call>" + "[" * 100_000,
        " \n<tool_call></tool_call> \n<tool_ca",
        "a < b, <tool> and <tool_call",
    ],
)
def test_what_is_no_call_is_text_to_the_letter(text: str) -> None:
    """A broken call is shown as the model wrote it: nothing of a reply is lost."""
    assert read(FreeCalls(NAMES), [text[:20], text[20:]]) == Outcome(text, [])


def test_text_before_a_call_goes_out_at_once() -> None:
    """Only what may be a tag is held back."""
    reader = FreeCalls(NAMES)

    assert reader.push("Let me see <tool") == [Content("Let me see ")]
    assert reader.push("box>") == [Content("<toolbox>")]


def test_a_tag_that_no_call_follows_holds_nothing_back() -> None:
    """Who writes about the tag used to be silent from there to the end of the reply."""
    reader = FreeCalls(NAMES)

    assert reader.push("The <tool_call>") == [Content("The ")]
    assert reader.push("\n") == []
    assert reader.push("tag") == [Content("<tool_call>"), Content("\ntag")]
    assert reader.push(f" and {NOW}")[-2:] == [CallOpened(0, ANY, "now"), CallArguments(0, "{}")]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_cuts_make_no_difference(data: st.DataObject) -> None:
    """Any text of tags, calls and blanks, cut anywhere."""
    pieces = ["<tool_call>", "</tool_call>", CALL, NOW, " ", "\n", "text", "<", '{"name": "now"}']
    text = "".join(data.draw(st.lists(st.sampled_from(pieces), max_size=8)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    cut = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    assert read(FreeCalls(NAMES), cut) == read(FreeCalls(NAMES), [text])


FORCED = (
    '<tool_call>\n{"name": "a\\"b", "arguments": {"x": "}\\\\", "y": {"z": [1, "{"]}}}\n'
    '</tool_call>\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
)


def test_forced_calls_are_passed_on_as_they_come() -> None:
    """Braces inside strings close nothing."""
    outcome = Outcome("", [('a"b', '{"x": "}\\\\", "y": {"z": [1, "{"]}}'), ("now", "{}")])

    assert read(ForcedCalls(), [FORCED]) == outcome
    assert read(ForcedCalls(), FORCED) == outcome
    for _, arguments in outcome.calls:
        json.loads(arguments)


def test_arguments_do_not_wait_for_the_end_of_their_call() -> None:
    """A long argument is streamed."""
    reader = ForcedCalls()
    reader.push('<tool_call>\n{"name": "now", "arguments": ')

    assert reader.push('{"text": "It was')[-1] == CallArguments(0, '{"text": "It was')
    assert reader.push(" a dark") == [CallArguments(0, " a dark")]


@pytest.mark.parametrize("end", range(len(FORCED)))
def test_a_reply_cut_by_its_length_keeps_what_was_there(end: int) -> None:
    """Cut inside its arguments a call is incomplete; cut before them it is text if it is the first.

    A second one that had hardly begun used to stand beside the first as if it were an answer.
    """
    cut = read(ForcedCalls(), [FORCED[:end]])
    whole = read(ForcedCalls(), [FORCED])

    for (name, arguments), (whole_name, whole_arguments) in zip(
        cut.calls, whole.calls, strict=False
    ):
        assert name == whole_name
        assert whole_arguments.startswith(arguments)
    assert cut.text == ("" if cut.calls else FORCED[:end])
