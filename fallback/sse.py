r"""Server-sent events, parsed from bytes as they arrive.

Knows nothing of JSON or OpenAI. As the WHATWG standard says: lines end in LF, CR
or CRLF, a line that starts with ``:`` is a comment, ``data`` lines of one event
join with LF, a blank line ends the event, and an event without that blank line
was never sent. Comments yield nothing, so they can reset no clock.
"""

MAX_EVENT_BYTES = 4 * 1024**2
"""An event longer than this is no event: the peer does not speak our protocol."""

_BOM = b"\xef\xbb\xbf"


class SSEParser:
    """Turns chunks of bytes into the data of whole events; one parser for one stream."""

    __slots__ = ("_buffer", "_skip_lf", "_start")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._start: bytes | None = b""
        """What came so far while it may be half a byte order mark; None once that is known."""
        self._skip_lf = False

    def feed(self, chunk: bytes) -> list[bytes]:
        r"""Return the data of the events that *chunk* completes.

        >>> SSEParser().feed(b": ping\n\ndata: a\ndata: b\r\n\r\ndata: c\n")
        [b'a\nb']
        """
        if self._start is not None:
            chunk = self._without_bom(self._start + chunk)
        chunk = self._with_plain_newlines(chunk)
        if self._buffer:
            # Only the seam and what is new are searched: a long event may come in many pieces.
            seam = len(self._buffer) - 1
            self._buffer += chunk
            if self._buffer.find(b"\n\n", seam) < 0:
                return []
            chunk = bytes(self._buffer)
        *blocks, rest = chunk.split(b"\n\n")
        self._buffer = bytearray(rest)
        return [data for block in blocks if (data := _data_of(block)) is not None]

    @property
    def is_overlong(self) -> bool:
        """Whether one unfinished event has grown past `MAX_EVENT_BYTES`."""
        return len(self._buffer) > MAX_EVENT_BYTES

    @property
    def has_rest(self) -> bool:
        """Whether bytes of an unfinished event are held: at the end, a cut event."""
        return bool(self._start or self._buffer.strip())

    def _without_bom(self, start: bytes) -> bytes:
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._start = start
            return b""
        self._start = None
        return start.removeprefix(_BOM)

    def _with_plain_newlines(self, chunk: bytes) -> bytes:
        if self._skip_lf and chunk:
            self._skip_lf = False
            chunk = chunk.removeprefix(b"\n")
        if b"\r" not in chunk:
            return chunk
        # A CR that ends the chunk is a newline now; an LF that follows belongs to it.
        self._skip_lf = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _data_of(block: bytes) -> bytes | None:
    if block.startswith(b"data: ") and b"\n" not in block:
        return block[6:]
    lines = [
        line[5:].removeprefix(b" ")
        for line in block.split(b"\n")
        if line.startswith(b"data:") or line == b"data"
    ]
    return b"\n".join(lines) if lines else None
