"""A storm: every rung a process, and a share of its attempts fail in every way there is.

Half of the calls stream. Every text is checked against what its server sends, every
row of the store against what the servers counted.
"""

import asyncio
import collections
import random
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from benchmarks.proof import Line, exactly
from failsoft.config.settings import (
    EndpointConfig,
    LadderConfig,
    RetryConfig,
    Settings,
    StoreConfig,
    TimeoutConfig,
)
from failsoft.errors import LadderExhaustedError, StreamInterruptedError
from failsoft.fallback.async_client import AsyncClient
from failsoft.fallback.transport import HTTPReply, HTTPTransport
from failsoft.store.store import Store
from tests.fallback.fault_server import Fault, FaultServer

NUM_TOKENS = 8
DEADLINE_S = 8.0
PARALLEL = 48
THREE_RUNGS = {"A": 0.3, "B": 0.3, "C": 0.3}
TWO_RUNGS = {"A": 0.3, "B": 0.1}
"""What the gateways were measured on."""
REFUSED_RATIO = 0.01
"""Of upstream attempts, on top: sent to a port that refuses connections."""
LATE_S = 0.1

ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]}
FAULTS: list[Fault] = [
    {"do": "reset"},
    {"do": "close"},
    {"do": "status", "status": 429},
    {"do": "status", "status": 429, "headers": {"retry-after-ms": "50"}},
    {"do": "status", "status": 500},
    {"do": "status", "status": 503},
    {"do": "status", "status": 503, "code": "queue_full"},
    {"do": "stall", "at": "silence"},
    {"do": "stall", "at": "headers"},
    {"do": "stall", "at": "role"},
    {"do": "stall", "at": "comments"},
    {"do": "stall", "at": "token"},
    *({"do": "cut", "how": how, "tokens": 4} for how in ("eof", "done", "rst", "short")),
    {"do": "cut", "how": "json", "tokens": 4},
    {"do": "cut", "how": "event", "tokens": 4},
    {"do": "plain", "body": "<html>busy</html>", "type": "text/html"},
    {"do": "plain", "body": '{"error": {"message": "x"}}', "type": "application/json"},
    {"do": "raw", "bytes": "\x00\x01 garbage\r\n\r\n"},
    {"do": "huge_header"},
    {"do": "events", "events": [ROLE, {"error": {"message": "x"}}]},
    {"do": "events", "events": [ROLE, "[DONE]"]},
]


@dataclass(slots=True)
class Tally:
    """What the callers met."""

    ok: int = 0
    interrupted: int = 0
    exhausted: int = 0
    unfair: int = 0
    """Errors although some rung was not asked, or asked without being out of tries."""
    truncated: int = 0
    mixed: int = 0
    late: int = 0
    hung: int = 0
    reasons: collections.Counter[str] = field(default_factory=collections.Counter)


class Rows(NamedTuple):
    """What the store holds afterwards."""

    calls: int
    incomplete: int
    sent: set[str]
    """Call id and attempt of each attempt that was sent, as its request names itself."""
    doubled: int


class RefusingTransport(HTTPTransport):
    """Sends a few requests to a port where nobody listens."""

    def __init__(self, port: int, seed: int) -> None:
        super().__init__()
        self._url = f"http://127.0.0.1:{port}/v1/chat/completions"
        self._rng = random.Random(seed)

    async def send(
        self,
        url: str,
        *,
        headers: list[tuple[str, str]],
        content: bytes | None,
        connect_s: float,
        rung: str,
        on_sent: Callable[[], None] = lambda: None,
    ) -> HTTPReply:
        """Send, or be refused."""
        if content is not None and self._rng.random() < REFUSED_RATIO:
            url = self._url
        return await super().send(
            url,
            headers=headers,
            content=content,
            connect_s=connect_s,
            rung=rung,
            on_sent=on_sent,
        )


def measure(num_calls: int, *, ratios: dict[str, float]) -> Iterator[Line]:
    """Run a storm and judge it.

    Args:
        num_calls: Calls to make.
        ratios: Share of each rung's attempts that fail, by server, first rung first.
    """
    with tempfile.TemporaryDirectory() as folder:
        tally, wire, rows = asyncio.run(_storm(num_calls, ratios, Path(folder)))
    yield exactly("errors while some rung was not asked", tally.unfair, 0)
    failed = tally.exhausted / num_calls
    yield Line(
        must_hold="calls that no rung answered <= 1 % (two gateways on a milder mix: 7.3, 15.3 %)",
        figure=f"{failed:.2%} of {num_calls} {dict(sorted(tally.reasons.items())) or ''}",
        has_passed=failed <= 0.01,
    )
    yield exactly(
        "streams broken after their first delta: each a typed error and an incomplete row",
        rows.incomplete,
        tally.interrupted,
    )
    yield exactly("silent truncations", tally.truncated, 0)
    yield exactly("mixed texts", tally.mixed, 0)
    yield exactly("hangs", tally.hung, 0)
    yield exactly(f"calls past their deadline by > {LATE_S * 1000:.0f} ms", tally.late, 0)
    seen = set(wire)
    yield Line(
        must_hold="attempts in the ledger and requests that the servers read are one for one",
        figure=f"{len(rows.sent)} attempts, {len(wire)} requests; {len(rows.sent - seen)} and "
        f"{len(seen - rows.sent)} without the other, {len(wire) - len(seen)} doubled",
        has_passed=rows.sent == seen and len(wire) == len(seen),
    )
    yield exactly("call rows, none lost", rows.calls, num_calls)
    yield exactly("rows doubled", rows.doubled, 0)


async def _storm(
    num_calls: int, ratios: dict[str, float], folder: Path
) -> tuple[Tally, list[str], Rows]:
    servers = [FaultServer(name) for name in ratios]
    settings = _settings(servers, folder)
    tally = Tally()
    try:
        for seed, server in enumerate(servers):
            default = {"do": "ok", "tokens": NUM_TOKENS}
            server.mix(FAULTS, ratio=ratios[server.name], seed=seed, default=default)
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            port = nobody.getsockname()[1]
            async with AsyncClient(
                settings, environ={}, make_transport=lambda: RefusingTransport(port, 7)
            ) as client:
                await _call_all(client, num_calls, tally)
        wire = [name for server in servers for name in server.stats()["ids"]]
    finally:
        for server in servers:
            server.close()
    return tally, wire, _count_rows(settings.store, num_calls)


def _count_rows(store_config: StoreConfig, num_calls: int) -> Rows:
    with Store(store_config, environ={}) as store:
        calls = store.reader.calls(limit=2 * num_calls)
        attempts = [a for call in calls for a in store.reader.attempts(call.call_id)]
    doubled = len(calls) - len({call.call_id for call in calls})
    doubled += len(attempts) - len({(a.call_id, a.attempt) for a in attempts})
    return Rows(
        calls=len(calls),
        incomplete=sum(call.outcome == "incomplete" for call in calls),
        sent={f"{a.call_id}-{a.attempt}" for a in attempts if a.was_sent},
        doubled=doubled,
    )


async def _call_all(client: AsyncClient, num_calls: int, tally: Tally) -> None:
    numbers = iter(range(num_calls))

    async def worker() -> None:
        for number in numbers:
            await _call(client, number, tally)

    await asyncio.gather(*(worker() for _ in range(PARALLEL)))


async def _call(client: AsyncClient, number: int, tally: Tally) -> None:
    ask = [{"role": "user", "content": f"question {number}"}]
    began_s = time.monotonic()
    try:
        async with asyncio.timeout(DEADLINE_S + 5):
            if number % 2:
                text = "".join([delta async for delta in client.stream(ask)])
            else:
                text = (await client.chat(ask)).text
    except TimeoutError:
        tally.hung += 1
    except StreamInterruptedError as exc:
        tally.interrupted += 1
        _judge_text(exc.text, tally, is_part=True)
    except LadderExhaustedError as exc:
        tally.exhausted += 1
        _judge_error(exc, tally, len(client.ladders["chat"].models))
    else:
        tally.ok += 1
        _judge_text(text, tally, is_part=False)
    tally.late += time.monotonic() - began_s > DEADLINE_S + LATE_S


def _judge_text(text: str, tally: Tally, *, is_part: bool) -> None:
    wholes = ["".join(f"{name}{i} " for i in range(NUM_TOKENS)) for name in THREE_RUNGS]
    if text in wholes:
        return
    if not any(whole.startswith(text) for whole in wholes):
        tally.mixed += 1
    elif not is_part:
        tally.truncated += 1


def _judge_error(error: LadderExhaustedError, tally: Tally, num_models: int) -> None:
    """An error is fair when every model rung was asked and failed."""
    asked = {getattr(a, "rung", -1) for a in error.attempts if getattr(a, "was_sent", False)}
    asked |= {
        getattr(a, "rung", -1)
        for a in error.attempts
        if getattr(a, "outcome", "") == "connect_failed"
    }
    if asked < set(range(num_models)):
        tally.unfair += 1
        skipped = [str(getattr(a, "outcome", "")) for a in error.attempts]
        tally.reasons.update(o for o in skipped if o.startswith(("skipped", "breaker")))


def _settings(servers: list[FaultServer], folder: Path) -> Settings:
    names = [server.name.lower() for server in servers]
    ladder = LadderConfig(
        name="chat",
        rungs=(*names, "cache"),
        deadline_s=DEADLINE_S,
        retry=RetryConfig(attempts=3, base_s=0.02, cap_s=0.2),
        timeouts=TimeoutConfig(connect_s=1.0, first_token_s=0.6, gap_s=0.6),
    )
    return Settings(
        store=StoreConfig(url=f"sqlite:///{folder / 'storm.db'}"),
        endpoints={
            name: EndpointConfig(name=name, url=server.url, model="m", context_tokens=4096)
            for name, server in zip(names, servers, strict=True)
        },
        ladders={"chat": ladder},
    )
