"""Reads what one child writes to stderr, so that it never waits for whoever reads ours.

The child gets a pipe, or a terminal of its own where ours is one: only then do progress bars
show. Knows nothing of processes.
"""

import asyncio
import fcntl
import os
import pty
import struct
import termios
from collections.abc import Callable
from contextlib import suppress

from failsoft.serving.supervisor.text import Piece, TextSplitter, plain

_READ_BYTES = 65_536


class ChildOutput:
    """The reading end of one child's stderr, and the end to hand to the child.

    Args:
        on_piece: Told what the child says, on the event loop.
        columns: Width of the terminal that the child is to have; None gives it a pipe.
    """

    def __init__(self, on_piece: Callable[[Piece], None], *, columns: int | None) -> None:
        self.last_line = ""
        """The last line that was there to stay, without colours."""
        self._on_piece = on_piece
        self._splitter = TextSplitter()
        self._reading, self.for_child = _ends(columns)
        os.set_blocking(self._reading, False)
        self._is_open = True

    def start(self) -> None:
        """Read from now on; the child has its end, so ours of it is closed."""
        os.close(self.for_child)
        asyncio.get_running_loop().add_reader(self._reading, self._read)

    def close(self) -> None:
        """Read what is there, then let go: a grandchild that still writes is not waited for."""
        while self._is_open and self._read():
            pass
        self._shut()

    def _read(self) -> bool:
        """Take in what can be read now; False when there is nothing."""
        try:
            data = os.read(self._reading, _READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:  # what a terminal says when its other end is closed
            data = b""
        if not data:
            self._shut()
            return False
        self._tell(self._splitter.feed(data))
        return True

    def _tell(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            if piece.is_line:
                self.last_line = plain(piece.text).strip()
            self._on_piece(piece)

    def _shut(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        with suppress(RuntimeError):  # the loop is closed
            asyncio.get_running_loop().remove_reader(self._reading)
        os.close(self._reading)
        self._tell(self._splitter.end())


def _ends(columns: int | None) -> tuple[int, int]:
    """Return both ends of a new terminal of that width, or of a pipe."""
    if columns is None:
        return os.pipe()
    try:
        reading, for_child = pty.openpty()
    except OSError:  # a container without terminals to give: bars do not show
        return os.pipe()
    fcntl.ioctl(for_child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    return reading, for_child
