"""A child's stderr becomes lines, and the passing states of the line it is on."""

from io import StringIO

import pytest
from rich.console import Console
from rich.progress import Progress

from failsoft.serving.supervisor.text import MAX_LINE_CHARS, TextSplitter, plain


def split(*parts: bytes) -> tuple[list[str], str]:
    """Return the lines that *parts* make, and the last state."""
    splitter = TextSplitter()
    pieces = [piece for part in parts for piece in splitter.feed(part)]
    lines = [piece.text for piece in pieces if piece.is_line]
    return lines, pieces[-1].text


@pytest.mark.parametrize(
    ("parts", "lines", "state"),
    [
        ([b"one\ntwo\nthr", b"ee\n"], ["one", "two", "three"], ""),
        ([b"one\r\ntwo\r", b"\nthree"], ["one", "two"], "three"),
        ([b"\r 10%", b"\r 20%"], [], " 20%"),
        ([b"\r 10%\r 99%\n"], [" 99%"], ""),
        ([b"a\n\n  \nb\n"], ["a", "b"], ""),
        (["Grüße".encode()[:3], "Grüße\n".encode()[3:]], ["Grüße"], ""),
        ([b"\xff\n"], ["\N{REPLACEMENT CHARACTER}"], ""),
        ([b"\x1b[31mred\x1b[0m\n"], ["\x1b[31mred\x1b[0m"], ""),
        ([b"\x1b[2K\x1b[1Aup\x07\n"], ["up"], ""),
        ([b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n"], ["link"], ""),
        ([b"a\x1b[", b"2Kb\n"], ["ab"], ""),
        ([b"\x1b7x\x1b8\n"], ["x"], ""),
    ],
)
def test_lines_and_states(parts: list[bytes], lines: list[str], state: str) -> None:
    """Colours stay; whatever moves the cursor goes, also when it comes in two parts."""
    assert split(*parts) == (lines, state)


def test_a_bar_of_rich_is_one_passing_state() -> None:
    """As a first download draws it; nothing of it scrolls by."""
    file = StringIO()
    console = Console(file=file, force_terminal=True, width=60, legacy_windows=False)
    with Progress(console=console, transient=True, auto_refresh=False) as progress:
        task = progress.add_task("fetching", total=10)
        for _ in range(10):
            progress.update(task, advance=1, refresh=True)
        drawn = file.getvalue()

    lines, state = split(drawn.encode())

    assert lines == []
    assert "fetching" in state
    assert "100%" in plain(state)


def test_a_line_without_end_is_cut() -> None:
    """So that no child fills the supervisor's memory."""
    lines, state = split(*[b"x" * 1000] * 20)

    assert [len(line) for line in lines] == [MAX_LINE_CHARS] * 2
    assert len(state) == 20_000 - 2 * MAX_LINE_CHARS


def test_a_control_sequence_without_end_is_cut_too() -> None:
    """It would be held back for ever, and looked through again at each read."""
    lines, state = split(b"\x1b[", *[b"1" * 1000] * 20)

    assert [len(line) for line in lines] == [MAX_LINE_CHARS - 2, MAX_LINE_CHARS]
    assert len(state) == 20_002 - 2 * MAX_LINE_CHARS


def test_what_is_left_at_the_end_is_a_line() -> None:
    """The last words of a process that was cut off."""
    splitter = TextSplitter()
    splitter.feed(b"Segmentation fa")

    assert [piece.text for piece in splitter.end() if piece.is_line] == ["Segmentation fa"]
