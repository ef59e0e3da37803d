"""Load on an OpenAI-compatible server: requests at a given rate, whether it keeps up or not.

Open loop: a slow server gets the next request all the same, as from callers who know
nothing of each other. Needs no torch. Seconds; rates in requests a second.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import httpx2

from failsoft.engine.bench.arrivals import arrivals_s
from failsoft.engine.bench.figures import Limits, Spread
from failsoft.engine.bench.stream_client import Outcome, Target, ask
from failsoft.engine.bench.workload import Item
from failsoft.errors import BenchError, ConfigError

_CONNECT_S = 10.0
_LATE_S, _LATE_SHARE = 0.02, 0.1
"""Sent later than both that and this share of the median TTFT, or ..."""
_BUSY_SHARE = 0.8
"""... busier than that, and the client is part of what it measures."""

Progress = Callable[[int, int, int], None]
"""Told how many requests were sent, how many ended, and how many of those failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """One rate."""

    rate_rps: float
    items: tuple[Item, ...]
    seed: int
    timeout_s: float
    """For one piece of a reply to come."""
    max_s: float
    """For the whole; what runs then is cancelled and counted as unfinished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateFigures:
    """What callers met at one rate."""

    rate_rps: float
    num_requests: int
    num_ok: int
    errors: dict[str, int]
    """By kind."""
    examples: dict[str, str]
    """What the first of each kind said."""
    wall_s: float
    """From the first request sent to the last one ended."""
    requests_per_s: float
    """Whole replies over the wall time."""
    output_tokens_per_s: float | None
    """Of whole replies; None when there was none."""
    ttft_s: Spread
    tpot_s: Spread
    e2e_s: Spread
    goodput_rps: float | None
    """Whole replies within all limits over the wall time; None without limits."""
    are_tokens_counted: bool
    """Whether the server said how many tokens it made; else pieces were counted."""
    late_p95_s: float | None
    """How much later than planned this client sent."""
    busy_share: float
    """Of one core, spent by this client."""

    @property
    def is_client_bound(self) -> bool:
        """Whether this client was itself the bottleneck."""
        bearable_s = max(_LATE_S, _LATE_SHARE * (self.ttft_s.p50 or 0.0))
        return self.busy_share > _BUSY_SHARE or (self.late_p95_s or 0.0) > bearable_s

    def document(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        rate = None if self.rate_rps == float("inf") else self.rate_rps
        return {**asdict(self), "rate_rps": rate, "is_client_bound": self.is_client_bound}


def check_url(url: str) -> str:
    """Return *url* without a slash at its end.

    Raises:
        ConfigError: It is no HTTP URL.
    """
    try:
        parts = httpx2.URL(url)
    except httpx2.InvalidURL:
        parts = httpx2.URL("")
    if parts.scheme not in ("http", "https") or not parts.host:
        raise ConfigError(key="--url", value=url, allowed="an http:// or https:// URL")
    return url.rstrip("/")


def find_model(url: str, *, api_key: str | None) -> str:
    """Return the first model that the server at *url* lists.

    Raises:
        BenchError: Nobody answers there, or no list of models comes.
    """
    try:
        with httpx2.Client(timeout=_CONNECT_S, headers=_headers(api_key)) as client:
            response = client.get(f"{url}/models")
        return str(response.json()["data"][0]["id"])
    except httpx2.HTTPError as exc:
        raise BenchError(
            f"nobody answers at {url} ({type(exc).__name__}); start a server or correct --url"
        ) from exc
    except (ValueError, KeyError, IndexError, TypeError) as exc:
        raise BenchError(
            f"{url}/models lists no model (HTTP {response.status_code}); does --url end in /v1? "
            "Name the model with --model, a key's variable with --api-key-env"
        ) from exc


async def check(target: Target, item: Item, *, api_key: str | None, timeout_s: float) -> None:
    """Ask once, unmeasured: what is wrong with every request is better said once.

    Raises:
        BenchError: The request failed.
    """
    async with _client(api_key, timeout_s) as client:
        outcome = await ask(client, target, item, planned_s=time.monotonic())
    if outcome.error is not None:
        raise BenchError(
            f"a first request to {target.url} failed ({outcome.error}: {outcome.detail}); "
            "nothing was measured"
        )


async def run_rate(
    target: Target,
    plan: LoadPlan,
    *,
    api_key: str | None,
    limits: Limits,
    on_progress: Progress = lambda _sent, _ended, _failed: None,
) -> RateFigures:
    """Send *plan*'s requests and return what came of them."""
    outcomes: list[Outcome] = []
    num_failed = 0
    cpu_s = time.process_time()
    async with _client(api_key, plan.timeout_s) as client:
        started_s = time.monotonic()
        until_s = started_s + plan.max_s
        tasks: list[asyncio.Task[None]] = []

        async def one(item: Item, planned_s: float) -> None:
            nonlocal num_failed
            outcome = await ask(client, target, item, planned_s=planned_s)
            outcomes.append(outcome)
            num_failed += outcome.error is not None
            on_progress(len(tasks), len(outcomes), num_failed)

        stamps = arrivals_s(rate_rps=plan.rate_rps, count=len(plan.items), seed=plan.seed)
        for item, offset_s in zip(plan.items, stamps, strict=True):
            planned_s = started_s + offset_s
            if planned_s >= until_s:
                break
            await asyncio.sleep(max(0.0, planned_s - time.monotonic()))
            tasks.append(asyncio.create_task(one(item, planned_s)))
        await _finish(tasks, until_s=until_s)
    busy = (time.process_time() - cpu_s) / max(time.monotonic() - started_s, 1e-9)
    return rate_figures(
        plan.rate_rps,
        outcomes,
        num_planned=len(plan.items),
        busy_share=busy,
        limits=limits,
    )


async def _finish(tasks: "Sequence[asyncio.Task[None]]", *, until_s: float) -> None:
    """Wait for *tasks* as long as there is time, and end the others."""
    if not tasks:
        return
    _, pending = await asyncio.wait(tasks, timeout=max(0.0, until_s - time.monotonic()))
    for task in pending:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def rate_figures(
    rate_rps: float,
    outcomes: Sequence[Outcome],
    *,
    num_planned: int,
    busy_share: float,
    limits: Limits,
) -> RateFigures:
    """Return what *outcomes* amount to; pure.

    Args:
        rate_rps: What was planned.
        outcomes: What came of the requests that were sent.
        num_planned: Requests that should have been sent; those that were not are errors.
        busy_share: Of one core, spent by this client.
        limits: What a good reply keeps.
    """
    good = [one for one in outcomes if one.error is None]
    errors = Counter(one.error for one in outcomes if one.error is not None)
    if num_planned > len(outcomes):
        errors["not sent in time"] = num_planned - len(outcomes)
    wall_s = max((one.ended_s for one in outcomes), default=0.0) - min(
        (one.sent_s for one in outcomes), default=0.0
    )
    per_s = 1 / wall_s if wall_s > 0 else 0.0
    num_within = sum(
        limits.allow(ttft_s=one.ttft_s, tpot_s=one.tpot_s, e2e_s=one.e2e_s) for one in good
    )
    return RateFigures(
        rate_rps=rate_rps,
        num_requests=num_planned,
        num_ok=len(good),
        errors=dict(errors.most_common()),
        examples={one.error: one.detail for one in reversed(outcomes) if one.error is not None},
        wall_s=wall_s,
        requests_per_s=len(good) * per_s,
        output_tokens_per_s=sum(one.num_tokens for one in good) * per_s if good else None,
        ttft_s=Spread.of(one.ttft_s for one in good),
        tpot_s=Spread.of(one.tpot_s for one in good),
        e2e_s=Spread.of(one.e2e_s for one in good),
        goodput_rps=num_within * per_s if limits.is_any else None,
        are_tokens_counted=bool(good) and all(one.is_counted for one in good),
        late_p95_s=Spread.of(one.late_s for one in outcomes).p95,
        busy_share=busy_share,
    )


def _client(api_key: str | None, timeout_s: float) -> httpx2.AsyncClient:
    """Return a client in which nothing waits for a connection: that would hide a queue there."""
    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(timeout_s, connect=_CONNECT_S, pool=None),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
        headers=_headers(api_key),
    )


def _headers(api_key: str | None) -> dict[str, str]:
    return {} if api_key is None else {"authorization": f"Bearer {api_key}"}
