"""What the ladder costs on success: client to an instant endpoint, minus a bare HTTP client.

    python -m benchmarks.ladder_overhead [--calls N] [--max-seconds S]

The endpoint is a raw socket server in its own process that answers one token at
once. Bare and ladder calls alternate, so that a busy moment hits both. Recording
is on, into a SQLite store. Units: milliseconds.
"""

import argparse
import asyncio
import json
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import httpx2

from failsoft.config.settings import EndpointConfig, LadderConfig, Settings, StoreConfig
from failsoft.fallback.async_client import AsyncClient
from tests.fallback.fault_server import FaultServer

ASK = [{"role": "user", "content": "hello"}]
INSTANT = {"do": "ok", "tokens": 1}
WARM_UP = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """Percentiles of both and of their difference, in milliseconds."""

    num_calls: int
    bare_p50_ms: float
    bare_p99_ms: float
    ladder_p50_ms: float
    ladder_p99_ms: float

    @property
    def p50_ms(self) -> float:
        """Median of the ladder minus median of the bare client."""
        return self.ladder_p50_ms - self.bare_p50_ms

    @property
    def p99_ms(self) -> float:
        """99th percentile of the ladder minus that of the bare client."""
        return self.ladder_p99_ms - self.bare_p99_ms


def percentile_ms(seconds: list[float], share: float) -> float:
    """Return the value that *share* (0..1) of *seconds* does not exceed, in milliseconds."""
    return sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))] * 1000


def settings_for(url: str, folder: Path) -> Settings:
    """Return a ladder of one model and the cache, recording into *folder*."""
    store = StoreConfig(url=f"sqlite:///{folder / 'overhead.db'}")
    endpoint = EndpointConfig(name="a", url=url, model="m")
    ladder = LadderConfig(name="chat", rungs=("a", "cache"))
    return Settings(store=store, endpoints={"a": endpoint}, ladders={"chat": ladder})


async def _bare(http: httpx2.AsyncClient, url: str) -> None:
    body = json.dumps({"model": "m", "messages": ASK, "stream": True})
    async with http.stream(
        "POST",
        f"{url}/chat/completions",
        content=body,
        headers={"content-type": "application/json"},
    ) as response:
        async for _ in response.aiter_bytes():
            pass


async def measure(num_calls: int, *, max_s: float) -> Overhead:
    """Measure *num_calls* of each kind, or as many as fit into *max_s* seconds."""
    bare: list[float] = []
    ladder: list[float] = []
    with FaultServer("A") as server, tempfile.TemporaryDirectory() as folder:
        server.plan(default=INSTANT)
        settings = settings_for(server.url, Path(folder))
        client = AsyncClient(replace(settings), environ={})
        async with client, httpx2.AsyncClient(trust_env=False) as http:
            until_s = time.monotonic() + max_s
            for number in range(WARM_UP + num_calls):
                began_s = time.perf_counter()
                await _bare(http, server.url)
                between_s = time.perf_counter()
                await client.chat(ASK)
                ended_s = time.perf_counter()
                if number >= WARM_UP:
                    bare.append(between_s - began_s)
                    ladder.append(ended_s - between_s)
                if time.monotonic() > until_s:
                    break
    return Overhead(
        num_calls=len(ladder),
        bare_p50_ms=percentile_ms(bare, 0.5),
        bare_p99_ms=percentile_ms(bare, 0.99),
        ladder_p50_ms=percentile_ms(ladder, 0.5),
        ladder_p99_ms=percentile_ms(ladder, 0.99),
    )


def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--max-seconds", type=float, default=120.0)
    arguments = parser.parse_args()
    seen = asyncio.run(measure(arguments.calls, max_s=arguments.max_seconds))
    print(
        f"{seen.num_calls} calls: bare p50 {seen.bare_p50_ms:.2f} p99 {seen.bare_p99_ms:.2f} ms, "
        f"ladder p50 {seen.ladder_p50_ms:.2f} p99 {seen.ladder_p99_ms:.2f} ms, "
        f"overhead p50 {seen.p50_ms:.2f} p99 {seen.p99_ms:.2f} ms"
    )


if __name__ == "__main__":
    main()
