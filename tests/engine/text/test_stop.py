"""Stop strings in a streamed text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failsoft.engine.text.stop import StopStrings


def cut(text: str, stops: list[str]) -> tuple[str, bool]:
    """Say it again simply: the prefix before the stop string that is complete first."""
    for end in range(len(text) + 1):
        found = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: min(found)], True
    return text, False


@settings(max_examples=500)
@given(
    st.lists(st.text("abc", max_size=4), max_size=12),
    st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
)
def test_the_cut_does_not_depend_on_the_deltas(deltas: list[str], stops: list[str]) -> None:
    """What is sent is the text before the first stop string, for any split of the text."""
    watcher = StopStrings(stops)

    sent = [watcher.push(delta) for delta in deltas]
    text = "".join([*sent, watcher.flush()])

    assert (text, watcher.is_matched) == cut("".join(deltas), stops)


def test_a_stop_string_over_three_deltas_is_never_shown() -> None:
    """Its first characters wait until they can no longer become the stop string."""
    watcher = StopStrings(["</answer>"])

    sent = [watcher.push(delta) for delta in ["42 </", "ans", "wer> and more"]]

    assert sent == ["42 ", "", ""]
    assert watcher.is_matched
    assert watcher.flush() == ""


def test_only_a_possible_beginning_is_held_back() -> None:
    """Text that cannot begin the stop string goes out at once."""
    watcher = StopStrings(["\nUser:"])

    assert watcher.push("hello") == "hello"
    assert watcher.push("\nUs") == ""
    assert watcher.push("ed") == "\nUsed"


@pytest.mark.parametrize("stops", [[], ["zzz"]])
def test_text_without_a_stop_string_is_unchanged(stops: list[str]) -> None:
    """No stop string given, or none met."""
    watcher = StopStrings(stops)

    assert watcher.push("jazz") + watcher.push(" z") + watcher.flush() == "jazz z"
    assert not watcher.is_matched


def test_a_stop_string_may_be_let_through_itself() -> None:
    """And nothing behind it."""
    watcher = StopStrings(["end", "stop"], is_shown=True)

    pieces = [watcher.push(piece) for piece in ("the e", "n", "d of it", " stop")]

    assert "".join(pieces) + watcher.flush() == "the end"
    assert watcher.is_matched
