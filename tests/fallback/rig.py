"""Ladders over fault servers, for tests: settings in one line, records in memory."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from failsoft.config.price import TokenPrice
from failsoft.config.settings import (
    BreakerConfig,
    CacheConfig,
    EndpointConfig,
    LadderConfig,
    RetryConfig,
    Settings,
    TimeoutConfig,
)
from failsoft.fallback.async_client import AsyncClient
from failsoft.fallback.client import Client
from failsoft.fallback.core import Backends
from failsoft.fallback.memory_store import (
    MemoryIdempotencyStore,
    MemoryRecorder,
    MemoryReplyStore,
)
from failsoft.fallback.reply import Reply
from failsoft.fallback.surroundings import Surroundings

Note = Callable[[str, object], None]
"""pytest's ``record_property``: a test's figure for the proof."""

ASK: list[dict[str, Any]] = [{"role": "user", "content": "SECRET-PROMPT what is soft?"}]
PRICE = TokenPrice(input_per_mtok=1.0, output_per_mtok=2.0)
FAST = TimeoutConfig(connect_s=0.5, first_token_s=0.4, gap_s=0.3)
PATIENT = TimeoutConfig(connect_s=3, first_token_s=10, gap_s=3)
"""For many calls at once, where nothing stalls: a busy machine is no fault."""
ONCE = RetryConfig(attempts=1, base_s=0.01, cap_s=0.05)
TWICE = RetryConfig(attempts=2, base_s=0.005, cap_s=0.02)
NEVER_OPEN = BreakerConfig(min_calls=100_000)


@dataclass(slots=True, kw_only=True)
class Rig:
    """A client and where its records went."""

    client: AsyncClient
    recorder: MemoryRecorder
    replies: MemoryReplyStore
    keys: MemoryIdempotencyStore
    settings: Settings
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def sent(self) -> list[str]:
        """Endpoint and outcome of every attempt that was sent."""
        return [f"{a.endpoint} {a.outcome}" for a in self.recorder.records.attempts if a.was_sent]

    @property
    def ledger(self) -> list[str]:
        """Endpoint and outcome of every row."""
        return [f"{a.endpoint} {a.outcome}" for a in self.recorder.records.attempts]


def settings_for(
    *rungs: tuple[str, str] | str,
    retry: RetryConfig = ONCE,
    timeouts: TimeoutConfig = FAST,
    breaker: BreakerConfig = NEVER_OPEN,
    cache: CacheConfig | None = None,
    deadline_s: float = 3.0,
    endpoint: dict[str, Any] | None = None,
) -> Settings:
    """Return settings with one ladder; a rung is ``(name, url)``, or ``"cache"``."""
    endpoints = {
        rung[0]: EndpointConfig(
            **{"name": rung[0], "url": rung[1], "model": "m", "price": PRICE, **(endpoint or {})}
        )
        for rung in rungs
        if not isinstance(rung, str)
    }
    ladder = LadderConfig(
        name="chat",
        rungs=tuple(rung if isinstance(rung, str) else rung[0] for rung in rungs),
        deadline_s=deadline_s,
        retry=retry,
        timeouts=timeouts,
        breaker=breaker,
        cache=cache or CacheConfig(),
    )
    return Settings(endpoints=endpoints, ladders={"chat": ladder})


def make_rig(
    settings: Settings,
    *,
    surroundings: Surroundings | None = None,
    replies: MemoryReplyStore | None = None,
    keys: MemoryIdempotencyStore | None = None,
) -> Rig:
    """Return a client over *settings* with its records in memory."""
    recorder, replies = MemoryRecorder(), replies or MemoryReplyStore()
    around = surroundings or Surroundings()
    keys = keys or MemoryIdempotencyStore(wall=around.wall)
    client = AsyncClient(
        settings,
        backends=Backends(recorder=recorder, replies=replies, keys=keys),
        environ={},
        surroundings=around,
    )
    return Rig(client=client, recorder=recorder, replies=replies, keys=keys, settings=settings)


def memory() -> Backends:
    """Return backends in memory."""
    return Backends(
        recorder=MemoryRecorder(), replies=MemoryReplyStore(), keys=MemoryIdempotencyStore()
    )


def make_client(settings: Settings) -> Client:
    """Return a sync client with its records in memory."""
    return Client(settings, backends=memory(), environ={})


@contextmanager
def refused_port() -> Iterator[int]:
    """Yield a loopback port that refuses connections: bound, not listening."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


def ask(rig: Rig, **arguments: Any) -> Reply:
    """Return one reply of *rig* and close it."""

    async def run() -> Reply:
        async with rig.client as client:
            return await client.chat(ASK, **arguments)

    return asyncio.run(run())
