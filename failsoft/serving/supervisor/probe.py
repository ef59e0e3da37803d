"""Asks a process of ours how it is: one small HTTP request, and the CPU time it has used."""

import asyncio
import json
import os

from failsoft.serving.supervisor.ask import exchange
from failsoft.serving.supervisor.watch import Answer

_MAX_REPLY_BYTES = 65_536
_REASONS: dict[str, Answer] = {
    "stuck": "stuck",
    "failing": "failing",
    "engine_dead": "engine_dead",
}


async def ask_health(url: str, *, timeout_s: float) -> Answer:
    """Return what GET *url* says of the process behind it.

    Args:
        url: A health route with host and port, over plain HTTP.
        timeout_s: Seconds for connecting and the whole answer.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return answer_of(await exchange(url, max_bytes=_MAX_REPLY_BYTES))
    except (TimeoutError, OSError):
        return "silent"


def answer_of(reply: bytes) -> Answer:
    r"""Return what a whole HTTP reply says.

    >>> answer_of(b'HTTP/1.1 503 Service Unavailable\r\n\r\n{"reason": "stuck"}')
    'stuck'
    >>> answer_of(b"HTTP/1.1 200 OK\r\n\r\n")
    'ready'
    """
    head, _, body = reply.partition(b"\r\n\r\n")
    protocol, _, rest = head.partition(b" ")
    if not protocol.startswith(b"HTTP/"):
        return "silent"
    if rest.startswith(b"200"):
        return "ready"
    try:
        reason = json.loads(body)["reason"]
    except (ValueError, KeyError, TypeError):
        return "not_ready"
    return _REASONS.get(reason, "not_ready") if isinstance(reason, str) else "not_ready"


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU time that process *pid* has used, all its threads; None where not told."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name, in brackets, may hold spaces and brackets itself.
            fields = file.read().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
