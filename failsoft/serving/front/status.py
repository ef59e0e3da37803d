"""Fills in what a front tells of itself (`failsoft.front_status`), and whether it is ready.

Stamps are UTC epoch milliseconds, durations seconds.
"""

import os

from failsoft.config.settings import CACHE_RUNG
from failsoft.fallback.cached_rung import CachedRung
from failsoft.fallback.ladder import Ladder
from failsoft.fallback.rung import EndpointRung
from failsoft.front_status import FrontStatus, LadderStatus, RungStatus
from failsoft.serving.front.front import Front


def front_status(front: Front) -> FrontStatus:
    """Return how *front* stands now."""
    refused = front.budget_refused
    return FrontStatus(
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
        store_trouble=front.store_trouble,
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
        can_serve=True,
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
        version_name=endpoint.version_name,
        version_digest=endpoint.version().digest,
        last_error=front.recorder.last_error(ladder, endpoint.name),
    )
