"""``GET /internal/status``: what a front knows of itself, for the other processes.

One JSON document, schema 1; readers take fields they do not know for what a later
failsoft adds. Stamps are UTC epoch milliseconds, durations seconds.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from failsoft.config.settings import CACHE_RUNG
from failsoft.fallback.cached_rung import CachedRung
from failsoft.fallback.ladder import Ladder
from failsoft.fallback.rung import EndpointRung
from failsoft.run_state import Reload
from failsoft.serving.front.front import Front
from failsoft.serving.front.recorder import LastError

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RungStatus:
    """One rung of a ladder."""

    index: int
    name: str
    kind: Literal["engine", "endpoint", "cache"]
    slot: str | None
    """Of a local engine."""
    can_serve: bool
    """Whether a call that came now would ask it."""
    why_not: str | None
    breaker: str | None
    """None for the cache."""
    retry_in_s: float | None
    """Until a broken rung is tried again; None while it is not broken."""
    version_name: str | None
    """What runs in the slot, or what is pinned there; the model of an endpoint elsewhere."""
    version_digest: str | None
    last_error: LastError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderStatus:
    """One ladder."""

    name: str
    budget_refused_total: int
    rungs: tuple[RungStatus, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontStatus:
    """The whole front."""

    schema: int
    pid: int
    started_at_ms: int
    is_draining: bool
    num_open_calls: int
    settings_read_at_ms: int
    last_reload: Reload | None
    """The last time it was told to read its settings again."""
    ladders: tuple[LadderStatus, ...]
    dropped_records: Mapping[str, int]


def front_status(front: Front) -> FrontStatus:
    """Return how *front* stands now."""
    refused = front.budget_refused
    return FrontStatus(
        schema=SCHEMA,
        pid=os.getpid(),
        started_at_ms=front.started_at_ms,
        is_draining=front.is_draining,
        num_open_calls=front.num_open_calls,
        settings_read_at_ms=front.settings_read_at_ms,
        last_reload=front.last_reload,
        ladders=tuple(
            LadderStatus(
                name=name,
                budget_refused_total=refused.get(name, 0),
                rungs=ladder_rungs(front, name, ladder),
            )
            for name, ladder in front.ladders.items()
        ),
        dropped_records=front.dropped_records,
    )


def why_not_ready(front: Front) -> list[str]:
    """Return why no call that came now could be answered by a model; empty when one could.

    A rung that was never asked is expected to serve. One broken rung, or one ladder without
    a model, does not make a front not ready: its other callers would lose it too.
    """
    if front.is_draining:
        return ["draining"]
    reasons = []
    for name, ladder in front.ladders.items():
        rungs = [_model_status(front, name, rung) for rung in ladder.models]
        if any(rung.can_serve for rung in rungs):
            return []
        reasons += [f"{name}: {rung.name}: {rung.why_not}" for rung in rungs]
    return reasons or ["the settings name no ladder with a model"]


def ladder_rungs(front: Front, name: str, ladder: Ladder) -> tuple[RungStatus, ...]:
    """Return every rung of *ladder* in order."""
    return tuple(
        _cache_status(front, name, rung)
        if isinstance(rung, CachedRung)
        else _model_status(front, name, rung)
        for rung in ladder.rungs
    )


def _cache_status(front: Front, ladder: str, rung: CachedRung) -> RungStatus:
    return RungStatus(
        index=rung.index,
        name=CACHE_RUNG,
        kind="cache",
        slot=None,
        can_serve=True,
        why_not=None,
        breaker=None,
        retry_in_s=None,
        version_name=None,
        version_digest=None,
        last_error=front.recorder.last_error(ladder, CACHE_RUNG),
    )


def _model_status(front: Front, ladder: str, rung: EndpointRung) -> RungStatus:
    endpoint = rung.endpoint
    target = endpoint.locate()
    wait_s = endpoint.breaker.retry_in_s
    why_not = target if isinstance(target, str) else None
    if why_not is None and wait_s:
        why_not = f"left alone after failures, asked again in {wait_s:.1f} s"
    return RungStatus(
        index=rung.place.index,
        name=endpoint.name,
        kind="endpoint" if endpoint.config.pin is None else "engine",
        slot=endpoint.config.pin,
        can_serve=why_not is None,
        why_not=why_not,
        breaker=endpoint.breaker.state.value,
        retry_in_s=wait_s,
        version_name=endpoint.pinned if isinstance(target, str) else target.model,
        version_digest=endpoint.version().digest,
        last_error=front.recorder.last_error(ladder, endpoint.name),
    )
