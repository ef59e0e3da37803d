"""Everything down at 100 calls/s: how many upstream calls one call makes."""

import asyncio
import contextlib
from collections.abc import Iterator

from benchmarks.proof import Line
from failsoft.config.settings import EndpointConfig, LadderConfig, Settings, TimeoutConfig
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
    "429, where no breaker can help": {"do": "status", "status": 429},
    "queue_full": {"do": "status", "status": 503, "code": "queue_full"},
    "reset": {"do": "reset"},
    "garbage": {"do": "raw", "bytes": "\x00\x01 garbage\r\n\r\n"},
    "an error inside a 200": {"do": "events", "events": [{"error": {"message": "x"}}]},
    "silence after the headers": {"do": "stall", "at": "headers"},
}
TIMEOUTS = TimeoutConfig(connect_s=0.5, first_token_s=0.5, gap_s=0.5)


def measure(*, is_short: bool) -> Iterator[Line]:
    """Load a ladder of two models that both fail, in several ways."""
    num_calls = CALLS_PER_S * (2 if is_short else 10)
    for name, fault in OUTAGES.items():
        upstream, num_rows = asyncio.run(_upstream_calls(fault, num_calls))
        ratio = (upstream - FLOOR) / num_calls
        yield Line(
            must_hold=f"both models down with {name}, {CALLS_PER_S} calls/s: upstream calls per "
            f"call, the budget's floor of {FLOOR} apart, <= {MAX_RATIO} (two gateways: 3.1, 6.0)",
            figure=f"{ratio:.3f} of {num_calls} calls; the ledger has {num_rows} of {upstream}",
            has_passed=ratio <= MAX_RATIO and num_rows == upstream,
        )


async def _upstream_calls(fault: Fault, num_calls: int) -> tuple[int, int]:
    """Return the servers' own count, and the ledger's."""
    recorder = MemoryRecorder()
    backends = Backends(
        recorder=recorder, replies=MemoryReplyStore(), keys=MemoryIdempotencyStore()
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
        num_rows = sum(attempt.was_sent for attempt in recorder.records.attempts)
        return first.hits + second.hits, num_rows


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
        ladders={"chat": LadderConfig(name="chat", rungs=("a", "b", "cache"), timeouts=TIMEOUTS)},
    )
