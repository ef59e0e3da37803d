"""The load on a front, in a process of its own: prints what it saw as one line of JSON.

    python -m benchmarks.front_load overhead DIRECT_URL FRONT_URL PARALLEL CALLS
    python -m benchmarks.front_load streams URL STREAMS SECONDS GAP_MS

Raw asyncio, so that the asker's own time is small and the same for both. Units: seconds.
"""

import asyncio
import json
import sys
import time
from typing import Any
from urllib.parse import urlsplit

ASK = [{"role": "user", "content": "What is the capital of France?"}]
CALLS_A_TURN = 25
WARM_UP_TURNS = 2


class Caller(asyncio.Protocol):
    """One connection that asks one thing after another."""

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None
        self._seen = b""
        self._until = b""
        self.on_data: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of asyncio's interface."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Part of asyncio's interface."""
        if self.on_data is not None:
            self.on_data(data)
        self._seen += data
        if self._until in self._seen and self._waiter is not None:
            self._waiter.set_result(None)
            self._waiter = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Part of asyncio's interface."""
        if self._waiter is not None:
            self._waiter.set_exception(exc or ConnectionResetError())
            self._waiter = None

    async def ask(self, request: bytes) -> None:
        """Send *request*."""
        self._seen = b""
        self._transport.write(request)

    async def wait(self, until: bytes) -> None:
        """Wait until *until* has come."""
        self._until = until
        if until not in self._seen:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def close(self) -> None:
        """Leave."""
        self._transport.abort()


def request_to(url: str, **body: Any) -> tuple[str, int, bytes]:
    """Return host, port and the bytes of a chat."""
    parts = urlsplit(url)
    raw = json.dumps({"messages": ASK, "temperature": 0.7, **body}).encode()
    head = (
        f"POST {parts.path}/chat/completions HTTP/1.1\r\nhost: {parts.netloc}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(raw)}\r\n\r\n"
    )
    return parts.hostname or "", parts.port or 80, head.encode() + raw


async def connect(host: str, port: int) -> Caller:
    """Return an open connection."""
    _, caller = await asyncio.get_running_loop().create_connection(Caller, host, port)
    return caller


async def turn(callers: list[Caller], request: bytes, *, is_stream: bool) -> list[float]:
    """Let each of *callers* ask some times; return the seconds to what is timed."""
    timed, end = (b"word0", b"0\r\n\r\n") if is_stream else (b'"usage"', b'"usage"')

    async def loop(caller: Caller) -> list[float]:
        times = []
        for _ in range(CALLS_A_TURN):
            began_s = time.perf_counter()
            await caller.ask(request)
            await caller.wait(timed)
            times.append(time.perf_counter() - began_s)
            await caller.wait(end)
        return times

    return [t for times in await asyncio.gather(*map(loop, callers)) for t in times]


async def overhead(direct: str, front: str, parallel: int, calls: int) -> dict[str, Any]:
    """Ask both in turn; return every time by what was timed and who was asked."""
    seen: dict[str, dict[str, list[float]]] = {}
    for name in ("whole", "first"):
        is_stream = name == "first"
        seen[name] = {"direct": [], "front": []}
        sides = {}
        for side, url in (("direct", direct), ("front", front)):
            host, port, request = request_to(url, stream=is_stream)
            sides[side] = [await connect(host, port) for _ in range(parallel)], request
        turns = WARM_UP_TURNS + max(1, calls // (parallel * CALLS_A_TURN))
        for number in range(turns):
            for side, (callers, request) in sides.items():
                times = await turn(callers, request, is_stream=is_stream)
                if number >= WARM_UP_TURNS:
                    seen[name][side] += times
        for callers, _ in sides.values():
            for caller in callers:
                caller.close()
    return seen


async def streams(url: str, num: int, seconds: float, gap_ms: float) -> dict[str, Any]:
    """Read *num* streams at once; return the gaps between their deltas."""
    tokens = int(seconds * 1000 / gap_ms)
    host, port, request = request_to(url, stream=True, max_tokens=tokens, gap_ms=gap_ms)
    gaps: list[float] = []
    counts: list[int] = []

    async def read() -> None:
        caller = await connect(host, port)
        last_s, count = 0.0, 0

        def on_data(data: bytes) -> None:
            nonlocal last_s, count
            now_s = time.perf_counter()
            if num_words := data.count(b'"content":"word'):
                count += num_words
                if last_s:
                    gaps.append(now_s - last_s)
                last_s = now_s
            caller._seen = data[-16:]  # noqa: SLF001 all of it would be searched each time

        caller.on_data = on_data
        await caller.ask(request)
        await caller.wait(b"[DONE]")
        counts.append(count)
        caller.close()

    await asyncio.gather(*(read() for _ in range(num)))
    return {"gaps": gaps, "counts": counts, "tokens": tokens}


async def main(arguments: list[str]) -> None:
    """Do what the command line says."""
    what, *rest = arguments
    if what == "overhead":
        seen = await overhead(rest[0], rest[1], int(rest[2]), int(rest[3]))
    else:
        seen = await streams(rest[0], int(rest[1]), float(rest[2]), float(rest[3]))
    print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
