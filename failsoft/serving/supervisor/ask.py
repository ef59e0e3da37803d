"""One HTTP request to a process of ours, over asyncio's own streams.

A question to a process that hangs must be given up at once when the supervisor stops or a move is
taken back, which a blocking client on a thread cannot be.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

MAX_REPLY_BYTES = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    """By their names in lower case."""
    body: bytes

    def document(self) -> Any:
        """Return the body as JSON values.

        Raises:
            ValueError: It is no JSON.
        """
        return json.loads(self.body)


async def fetch(
    url: str,
    *,
    token: str | None = None,
    body: Mapping[str, Any] | None = None,
    timeout_s: float,
) -> HttpReply:
    """Return the reply to a GET of *url*, or to a POST where there is a *body*.

    Args:
        url: With host and port, over plain HTTP.
        token: What the engine asks of its callers.
        body: Sent as JSON.
        timeout_s: Seconds for connecting and the whole reply.

    Raises:
        OSError: Nobody answers, or not in time (`TimeoutError`).
        ValueError: What answers speaks no HTTP, or sends more than `MAX_REPLY_BYTES`.
    """
    async with asyncio.timeout(timeout_s):
        reply = await exchange(url, token=token, body=body, max_bytes=MAX_REPLY_BYTES + 1)
    if len(reply) > MAX_REPLY_BYTES:
        raise ValueError(f"the reply is longer than {MAX_REPLY_BYTES} bytes")
    return parse_reply(reply)


async def exchange(
    url: str,
    *,
    token: str | None = None,
    body: Mapping[str, Any] | None = None,
    max_bytes: int,
) -> bytes:
    """Return what comes back, as it came: the first *max_bytes* bytes of it at least.

    Args:
        url: With host and port, over plain HTTP.
        token: What the process asks of its callers.
        body: Sent as JSON by a POST; None sends a GET.
        max_bytes: When to stop reading.

    Raises:
        OSError: Nobody answers.
    """
    parts = urlsplit(url)
    payload = b"" if body is None else json.dumps(body).encode()
    lines = [
        f"{'GET' if body is None else 'POST'} {parts.path} HTTP/1.1",
        f"Host: {parts.netloc}",
        "Connection: close",
    ]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(payload)}"]
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode() + payload)
        reply = b""
        while len(reply) < max_bytes and (part := await reader.read(65_536)):
            reply += part
        return reply
    finally:
        writer.close()


def parse_reply(reply: bytes) -> HttpReply:
    r"""Return a whole HTTP reply in parts; its body has its length told, or ends with it.

    >>> parse_reply(b"HTTP/1.1 200 OK\r\nX-A: b\r\n\r\n{}").headers
    {'x-a': 'b'}

    Raises:
        ValueError: It is none, or was cut.
    """
    head, separator, body = reply.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    protocol, _, rest = first.partition(" ")
    if not separator or not protocol.startswith("HTTP/") or not rest[:3].isdigit():
        raise ValueError("it answers nothing that is HTTP")
    fields = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in fields}
    length = headers.get("content-length", "")
    if length.isdigit() and len(body) != int(length):
        raise ValueError("its reply was cut")
    return HttpReply(status=int(rest[:3]), headers=headers, body=body)
