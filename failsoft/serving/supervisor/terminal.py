"""What people read on stderr: events of the supervisor, and what its children say.

A thread writes, because a terminal that is held (Ctrl-S) or a pager that waits must not hold
up restarts; past a bound lines are dropped and counted. On a terminal the last line shows
what the children are at; elsewhere there are lines only.
"""

import os
import queue
import threading
from contextlib import suppress
from enum import StrEnum

from failsoft.serving.supervisor.text import Piece, plain

MAX_WAITING = 10_000
"""Lines that wait for a slow reader at most."""

_COLUMNS = 80
"""Of a terminal that does not say how wide it is."""
_ERASE = "\r\x1b[K"
_RESET = "\x1b[0m"


class Tone(StrEnum):
    """How an event is shown where there are colours."""

    PLAIN = ""
    DIM = "\x1b[2m"
    GOOD = "\x1b[32m"
    WARNING = "\x1b[33m"
    BAD = "\x1b[1;31m"


class Terminal:
    """Writes whole lines to one file descriptor; any thread may call it.

    Args:
        fd: Usually 2, stderr.
        is_terminal: Whether it shows colours and a last line that changes.
        columns: Its width; matters on a terminal only.
    """

    def __init__(self, fd: int, *, is_terminal: bool, columns: int = _COLUMNS) -> None:
        self.is_terminal = is_terminal
        self.columns = columns
        self._fd = fd
        self._queue: queue.SimpleQueue[tuple[str, Piece] | None] = queue.SimpleQueue()
        self._num_dropped = 0
        self._states: dict[str, str] = {}
        self._thread = threading.Thread(target=self._run, name="failsoft-terminal", daemon=True)
        self._thread.start()

    @classmethod
    def of_stderr(cls) -> "Terminal":
        """Return the terminal that this process' stderr is, or is not."""
        try:
            columns = os.get_terminal_size(2).columns or _COLUMNS
        except OSError:
            return cls(2, is_terminal=False)
        return cls(2, is_terminal=True, columns=columns)

    def say(self, text: str, tone: Tone = Tone.PLAIN) -> None:
        """Write one line of our own."""
        has_tone = self.is_terminal and tone is not Tone.PLAIN
        self._put("", Piece(f"{tone}{text}{_RESET}" if has_tone else text, is_line=True))

    def hear(self, name: str, piece: Piece) -> None:
        """Write what the child called *name* says."""
        if piece.is_line or self.is_terminal:
            self._put(name, piece)

    def close(self, timeout_s: float = 1.0) -> None:
        """Write what waits; what a reader who does not read leaves is lost."""
        self._queue.put(None)
        self._thread.join(timeout_s)

    def _put(self, name: str, piece: Piece) -> None:
        if self._queue.qsize() < MAX_WAITING:
            self._queue.put((name, piece))
        else:
            self._num_dropped += 1

    # The writing thread.

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            self._write(*item)
            if self._queue.empty():
                self._tell_lost()
        self._tell_lost()
        if self._states:
            self._send(_ERASE)

    def _tell_lost(self) -> None:
        if self._num_dropped:
            lost, self._num_dropped = self._num_dropped, 0
            self._write("", Piece(f"{lost} lines were not shown: nobody read", is_line=True))

    def _write(self, name: str, piece: Piece) -> None:
        if not piece.is_line:
            self._note_state(name, piece.text)
            return
        text = piece.text
        if name:
            text = f"{name} | {text}{_RESET}" if self.is_terminal else f"{name} | {plain(text)}"
        shown = f"{_ERASE}{text}\n{self._last_line()}" if self._states else f"{text}\n"
        self._send(shown)

    def _note_state(self, name: str, text: str) -> None:
        before = dict(self._states)
        if plain(text).strip():
            self._states[name] = plain(text).strip()
        else:
            self._states.pop(name, None)
        if self._states != before:
            self._send(f"{_ERASE}{self._last_line()}")

    def _last_line(self) -> str:
        """Return what the children are at, cut to the width: a line that wraps cannot be erased."""
        if not self._states:
            return ""
        width = max(10, (self.columns - 1) // len(self._states) - 3)
        return "   ".join(f"{name}: {state}"[:width] for name, state in self._states.items())

    def _send(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        with suppress(OSError):  # nobody reads any more; the children matter more
            while data:
                data = data[os.write(self._fd, data) :]
