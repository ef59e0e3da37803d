"""Everything down at 100 calls/s: how many upstream calls one call makes."""

import asyncio
import contextlib
from collections.abc import Iterator

from benchmarks.proof_line import Line
from failsoft.config.settings import EndpointConfig, LadderConfig, Settings
from failsoft.errors import LadderExhaustedError
from failsoft.fallback.async_client import AsyncClient
from failsoft.fallback.core import Backends
from failsoft.fallback.memory_store import (
    MemoryIdempotencyStore,
    MemoryRecorder,
    MemoryReplyStore,
)
from failsoft.fallback.retry_budget import FLOOR
from tests.fallback.fault_server import Fault, FaultServer

ASK = [{"role": "user", "content": "hello"}]
CALLS_PER_S = 100
MAX_RATIO = 1.15

OUTAGES: dict[str, Fault] = {
    "503": {"do": "status", "status": 503},
    "429 (no breaker can help)": {"do": "status", "status": 429},
    "reset": {"do": "reset"},
}


def prove_outage(*, short: bool) -> Iterator[Line]:
    """Load a ladder of two models that both fail, in several ways."""
    for name, fault in OUTAGES.items():
        num_calls = CALLS_PER_S * (3 if short else 10)
        upstream = asyncio.run(_upstream_calls(fault, num_calls))
        ratio = (upstream - FLOOR) / num_calls
        yield Line(
            name=f"both models down with {name}, {CALLS_PER_S} calls/s, upstream calls per call",
            figure=f"{ratio:.3f}",
            limit=f"<= {MAX_RATIO} after the budget's floor; two gateways: 3.1 and 6.0",
            holds=ratio <= MAX_RATIO,
        )


async def _upstream_calls(fault: Fault, num_calls: int) -> int:
    backends = Backends(
        recorder=MemoryRecorder(), replies=MemoryReplyStore(), keys=MemoryIdempotencyStore()
    )
    with FaultServer("A") as first, FaultServer("B") as second:
        for server in (first, second):
            server.plan(default=fault)
        async with AsyncClient(_settings(first, second), backends=backends, environ={}) as client:
            tasks = []
            for _ in range(num_calls):
                tasks.append(asyncio.create_task(_one(client)))
                await asyncio.sleep(1 / CALLS_PER_S)
            await asyncio.gather(*tasks)
        return first.hits + second.hits


async def _one(client: AsyncClient) -> None:
    with contextlib.suppress(LadderExhaustedError):
        await client.chat(ASK)


def _settings(first: FaultServer, second: FaultServer) -> Settings:
    servers = {"a": first, "b": second}
    return Settings(
        endpoints={
            name: EndpointConfig(name=name, url=server.url, model="m")
            for name, server in servers.items()
        },
        ladders={"chat": LadderConfig(name="chat", rungs=("a", "b", "cache"))},
    )
