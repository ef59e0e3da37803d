"""What the ladder adds to a stream: to its first delta, and between 64 streams' deltas.

The endpoint is a raw socket server in its own process; bare streams over one HTTP client
and streams through the ladder alternate. Units: milliseconds.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import httpx2

from benchmarks.ladder_overhead import ASK, percentile_ms, settings_for
from benchmarks.proof import Line
from failsoft.fallback.async_client import AsyncClient
from tests.fallback.fault_server import FaultServer

PACED = {"do": "ok", "tokens": 150, "gap_s": 0.02}
"""50 deltas a second for 3 s."""
NUM_STREAMS = 64
MAX_GAP_MS = 50.0
MAX_CPU_RATIO = 0.6

Once = Callable[[], Awaitable[float]]
"""Makes one call; returns the seconds to what is timed."""


class Pair(NamedTuple):
    """Percentiles of the ladder minus those of the bare client, in milliseconds."""

    p50_ms: float
    p99_ms: float


async def compare(bare: Once, ladder: Once, *, parallel: int, rounds: int) -> Pair:
    """Alternate rounds of *parallel* bare and ladder calls."""
    seen: dict[str, list[float]] = {"bare": [], "ladder": []}
    for number in range(rounds + 2):
        for name, once in (("bare", bare), ("ladder", ladder)):
            times = await asyncio.gather(*(once() for _ in range(parallel)))
            if number >= 2:  # the first rounds open connections
                seen[name] += times
    return Pair(
        *(
            percentile_ms(seen["ladder"], share) - percentile_ms(seen["bare"], share)
            for share in (0.5, 0.99)
        )
    )


async def _compare_all(*, rounds: int) -> dict[tuple[str, int], Pair]:
    with FaultServer("A") as server, tempfile.TemporaryDirectory() as folder:
        client = AsyncClient(settings_for(server.url, Path(folder)), environ={})
        async with client, httpx2.AsyncClient(trust_env=False) as http:
            body = json.dumps({"model": "m", "messages": ASK, "stream": True})
            head = {"content-type": "application/json"}
            url = f"{server.url}/chat/completions"

            async def bare(until: bytes) -> float:
                began_s = time.perf_counter()
                took_s = 0.0
                async with http.stream("POST", url, content=body, headers=head) as response:
                    async for piece in response.aiter_bytes():
                        if not took_s and until in piece:
                            took_s = time.perf_counter() - began_s
                return took_s

            async def first() -> float:
                began_s = time.perf_counter()
                took_s = 0.0
                async for _ in client.stream(ASK):
                    took_s = took_s or time.perf_counter() - began_s
                return took_s

            async def whole() -> float:
                began_s = time.perf_counter()
                await client.chat(ASK)
                return time.perf_counter() - began_s

            pairs = {}
            for parallel in (1, 16):
                many = rounds if parallel == 1 else max(3, rounds // 8)
                for name, until, once in (("whole", b"DONE", whole), ("first", b"A0", first)):
                    pairs[name, parallel] = await compare(
                        lambda until=until: bare(until),  # type: ignore[misc]
                        once,
                        parallel=parallel,
                        rounds=many,
                    )
            return pairs


LIMITS = {
    ("whole", 1): (1.5, 5.0),
    ("whole", 16): (12.0, 40.0),
    ("first", 1): (2.0, None),
    ("first", 16): (15.0, None),
}
WORDS = {"whole": "a whole call", "first": "the first delta"}


def measure(*, is_short: bool) -> Iterator[Line]:
    """Compare with a bare client, then watch 64 streams at once."""
    pairs = asyncio.run(_compare_all(rounds=40 if is_short else 400))
    for key, pair in pairs.items():
        p50_max, p99_max = LIMITS[key]
        aim = f"p50 <= {p50_max:g} ms" + (f", p99 <= {p99_max:g} ms" if p99_max else "")
        yield Line(
            must_hold=f"over a bare client, {WORDS[key[0]]}, {key[1]} at once: {aim}",
            figure=f"p50 {pair.p50_ms:+.2f} ms, p99 {pair.p99_ms:+.2f} ms",
            has_passed=pair.p50_ms <= p50_max and (p99_max is None or pair.p99_ms <= p99_max),
        )
    gap_ms, cpu = asyncio.run(_many_streams())
    yield Line(
        must_hold=f"{NUM_STREAMS} streams of 50 deltas/s: largest gap <= {MAX_GAP_MS:g} ms (of "
        f"which 20 are the pace), CPU <= {MAX_CPU_RATIO:.0%} of a core",
        figure=f"{gap_ms:.0f} ms, {cpu:.0%}",
        has_passed=gap_ms <= MAX_GAP_MS and cpu <= MAX_CPU_RATIO,
    )


async def _many_streams() -> tuple[float, float]:
    """Return the largest gap in milliseconds, and the share of a core this process took."""
    with FaultServer("A") as server, tempfile.TemporaryDirectory() as folder:
        server.plan(default=PACED)
        async with AsyncClient(settings_for(server.url, Path(folder)), environ={}) as client:

            async def read() -> float:
                last_s, gap_s = 0.0, 0.0
                async for _ in client.stream(ASK, cache="off"):
                    now_s = time.perf_counter()
                    gap_s = max(gap_s, now_s - last_s if last_s else 0.0)
                    last_s = now_s
                return gap_s

            began_s, cpu_s = time.perf_counter(), time.process_time()
            gaps = await asyncio.gather(*(read() for _ in range(NUM_STREAMS)))
            used = (time.process_time() - cpu_s) / (time.perf_counter() - began_s)
    return max(gaps) * 1000, used
