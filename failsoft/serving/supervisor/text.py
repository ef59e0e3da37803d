"""Bytes that a child writes to stderr, as lines and as passing states of the line it is on.

A progress bar is one line drawn again and again: what a carriage return throws away was a
passing state, what a line feed ends is there to stay. Colours are kept; all other control
sequences go, since the lines of several children share one terminal.
"""

import codecs
import re
from collections.abc import Iterator
from typing import NamedTuple

MAX_LINE_CHARS = 8192
"""Longer lines are cut in pieces, so that a child cannot fill the supervisor's memory."""

_COLOUR = r"\x1b\[[0-9;:]{0,64}m"
_CONTROL = re.compile(
    rf"({_COLOUR})"
    r"|\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]"  # cursor movements, erasing
    r"|\x1b\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\)"  # links and titles
    r"|\x1b.?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]"
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}|\][^\x07\x1b]{0,1000}\x1b?)?\Z")


class Piece(NamedTuple):
    """What a child says now."""

    text: str
    """Without a line end; may hold colours."""
    is_line: bool
    """Whether it is there to stay; else it is the state of the line the child is on."""


class TextSplitter:
    """Splits one child's stderr; keeps what is not finished."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""

    def feed(self, data: bytes) -> list[Piece]:
        """Take *data* in and return what it adds; an empty text clears a passing state."""
        text = self._rest + self._decoder.decode(data)
        text, cut = self._hold_back(text)
        *lines, current = text.replace("\r\n", "\n").split("\n")
        pieces = [Piece(line, is_line=True) for line in lines for line in _shown(line)]
        while len(current) > MAX_LINE_CHARS:
            pieces.append(Piece(_clean(current[:MAX_LINE_CHARS]), is_line=True))
            current = current[MAX_LINE_CHARS:]
        current = current.rpartition("\r")[2] or current
        self._rest = current + cut
        pieces.append(Piece(_clean(current.rstrip("\r")), is_line=False))
        return pieces

    def end(self) -> list[Piece]:
        """Return what is left when nothing more comes."""
        text, self._rest = self._rest + self._decoder.decode(b"", final=True), ""
        return [*(Piece(line, is_line=True) for line in _shown(text)), Piece("", is_line=False)]

    def _hold_back(self, text: str) -> tuple[str, str]:
        """Return *text* without a control sequence that has only begun, and that sequence."""
        match = _UNFINISHED.search(text)
        return (text, "") if match is None else (text[: match.start()], match[0])


def _shown(line: str) -> Iterator[str]:
    """Yield what is left of a finished line once its earlier states are gone, if anything."""
    states = [state for part in line.split("\r") if (state := _clean(part)).strip()]
    if states:
        yield states[-1]


def _clean(text: str) -> str:
    return _CONTROL.sub(lambda match: match[1] or "", text)


def plain(text: str) -> str:
    """Return *text* without its colours."""
    return re.sub(_COLOUR, "", text)
