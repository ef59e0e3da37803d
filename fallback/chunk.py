"""One chunk of a stream: its JSON, and the bytes it came as where they may be sent on.

Knows nothing of server-sent events or HTTP.
"""

from typing import Any

from failsoft.fallback.compact_json import compact_json
from failsoft.fallback.outside_json import parse_json

Chunk = dict[str, Any]
"""One OpenAI-shaped chunk."""

_LINE_BREAKS = ("\x85", "\u2028", "\u2029")
"""Characters beside LF at which some clients split lines (``str.splitlines``)."""


class WireChunk(Chunk):
    """A chunk as an endpoint sent it; nobody may change it, for *raw* would not follow."""

    __slots__ = ("raw",)

    raw: bytes | None
    """Its JSON in one line of UTF-8; None when it must be written anew to be one."""


def parse_chunk(data: bytes) -> object:
    """Return the JSON of one event's data; an object comes as a `WireChunk`.

    Raises:
        ValueError: It is not JSON in UTF-8.
    """
    text = data.decode()
    parsed = parse_json(text)
    if not isinstance(parsed, dict):
        return parsed
    chunk = WireChunk(parsed)
    is_line = b"\n" not in data and (
        data.isascii() or not any(char in text for char in _LINE_BREAKS)
    )
    chunk.raw = data if is_line else None
    return chunk


def is_idle(chunk: Chunk) -> bool:
    """Return whether *chunk* has choices, and nothing is new of any: a sign that tokens come."""
    choices = chunk.get("choices")
    said = ("delta", "text", "logprobs", "finish_reason")
    return bool(choices) and not any(choice.get(name) for choice in choices or () for name in said)


def chunk_bytes(chunk: Chunk) -> bytes:
    """Return *chunk* as one line of JSON: as it came if it did, else in ASCII."""
    raw = chunk.raw if isinstance(chunk, WireChunk) else None
    return raw or compact_json(chunk).encode()
