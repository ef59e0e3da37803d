"""What people read on stderr, over a real pipe."""

import os

from failsoft.serving.supervisor.terminal import MAX_WAITING, Terminal, Tone
from failsoft.serving.supervisor.text import Piece

ERASE = "\r\x1b[K"


def shown(*said: tuple[str, str, bool], is_terminal: bool, columns: int = 80) -> str:
    """Return what a terminal shows of what children say: name, text, whether it is a line."""
    reading, writing = os.pipe()
    terminal = Terminal(writing, is_terminal=is_terminal, columns=columns)
    for name, text, is_line in said:
        terminal.hear(name, Piece(text, is_line))
    terminal.close()
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        return file.read().decode()


def test_lines_carry_their_childs_name() -> None:
    """Without colours where there is no terminal."""
    text = shown(("primary", "\x1b[31mred\x1b[0m", True), is_terminal=False)

    assert text == "primary | red\n"


def test_states_show_on_a_terminal_only() -> None:
    """A log file has no use for a bar."""
    said = ("primary", "10%", False), ("primary", "20%", False), ("small", "done", True)

    assert shown(*said, is_terminal=False) == "small | done\n"


def test_the_last_line_shows_what_each_child_is_at() -> None:
    """It is drawn anew under each line, and taken away at the end."""
    said = ("a", "10%", False), ("b", "5%", False), ("a", "hello", True), ("b", "", False)

    parts = shown(*said, is_terminal=True).split(ERASE)

    assert parts == [
        "",
        "a: 10%",
        "a: 10%   b: 5%",
        "a | hello\x1b[0m\na: 10%   b: 5%",
        "a: 10%",
        "",
    ]


def test_the_last_line_never_wraps() -> None:
    """A wrapped line cannot be erased."""
    said = ("a", "x" * 200, False), ("b", "y" * 200, False)

    assert max(map(len, shown(*said, is_terminal=True, columns=60).split(ERASE))) < 60


def test_a_reader_that_does_not_read_holds_nobody_up() -> None:
    """A held terminal: lines past the bound are dropped and counted, close returns."""
    reading, writing = os.pipe()
    terminal = Terminal(writing, is_terminal=False)
    for _ in range(MAX_WAITING + 2000):
        terminal.say("x" * 100)

    terminal.close(timeout_s=0.05)

    text = b""
    while b"were not shown" not in text:
        text += os.read(reading, 65_536)
    for end in (reading, writing):
        os.close(end)


def test_a_reader_that_is_gone_is_no_error() -> None:
    """`failsoft up 2>&1 | head`."""
    reading, writing = os.pipe()
    os.close(reading)
    terminal = Terminal(writing, is_terminal=False)

    terminal.say("hello", Tone.BAD)
    terminal.close()

    os.close(writing)
