"""Draws one `Standing` out of what every source said; pure.

What nobody could say stays unknown: a ladder that only the settings name has rungs of
which nobody knows whether they serve. Stamps are UTC epoch milliseconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from failsoft.config.settings import CACHE_RUNG, LadderConfig, Settings
from failsoft.dashboard.incidents import incidents_of
from failsoft.dashboard.pins import pinned_slots
from failsoft.dashboard.sources.ledger import LedgerReading
from failsoft.dashboard.standing import (
    Answers,
    Engine,
    Front,
    Ladder,
    Rung,
    Standing,
    Traffic,
    Unknown,
    Verdict,
)
from failsoft.dashboard.verdict import by_calls, doubted, judge, worst
from failsoft.fingerprint_status import FingerprintStanding
from failsoft.front_status import FrontStatus, LadderStatus, LastError
from failsoft.pin_records import PinnedVersion
from failsoft.run_state import FrontState, SupervisorState
from failsoft.store.traffic import CallEnd

NOTHING_RUNS = "nothing runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one look brought back."""

    at_ms: int
    settings: Settings | Unknown
    """What there should be; Unknown when the file is broken."""
    settings_path: str | None
    supervisor: SupervisorState | None
    """None when none runs."""
    front_state: FrontState | None
    """Where the front says it listens; None when it says nothing."""
    front: FrontStatus | Unknown
    engines: Mapping[str, Engine]
    """By slot."""
    store: LedgerReading | Unknown
    fingerprints: Mapping[str, FingerprintStanding]
    """By endpoint, as the ops process left them."""
    file_pins: Mapping[str, PinnedVersion] | Unknown
    """What the settings file pins as it lies there now, by slot; empty where nothing was moved."""


def draw(seen: Seen) -> Standing:
    """Return the picture."""
    ladders = _ladders(seen)
    verdict = worst({ladder.name: ladder.verdict for ladder in ladders})
    store = seen.store
    return Standing(
        at_ms=seen.at_ms,
        verdict=verdict or _without_ladder(seen),
        settings=seen.settings_path,
        api_url=_api_url(seen),
        ladders=ladders,
        supervisor=seen.supervisor or Unknown(reason="no `failsoft up` runs here"),
        front=seen.front if isinstance(seen.front, Unknown) else _front_of(seen.front),
        engines=tuple(seen.engines.values()),
        pins=store if isinstance(store, Unknown) else pinned_slots(store, seen.file_pins),
        fingerprints=tuple(seen.fingerprints.values()),
        dropped_24h=store if isinstance(store, Unknown) else store.dropped_24h,
        incidents=store if isinstance(store, Unknown) else incidents_of(store.events),
    )


def _api_url(seen: Seen) -> str | None:
    if seen.front_state is not None:
        return seen.front_state.url
    return seen.supervisor.api_url if seen.supervisor is not None else None


def _front_of(reading: FrontStatus) -> Front:
    return Front(
        pid=reading.pid,
        started_at_ms=reading.started_at_ms,
        is_draining=reading.is_draining,
        num_open_calls=reading.num_open_calls,
        settings_read_at_ms=reading.settings_read_at_ms,
        dropped_records={kind: num for kind, num in reading.dropped_records.items() if num},
        store_trouble=reading.store_trouble,
        last_reload=reading.last_reload,
    )


def _ladders(seen: Seen) -> tuple[Ladder, ...]:
    if not isinstance(seen.front, Unknown):
        return tuple(_told_by_front(seen, seen.front, ladder) for ladder in seen.front.ladders)
    if isinstance(seen.settings, Unknown):
        return ()
    return tuple(
        _told_by_settings(seen, seen.settings, config) for config in seen.settings.ladders.values()
    )


def _told_by_front(seen: Seen, front: FrontStatus, ladder: LadderStatus) -> Ladder:
    rungs = tuple(doubted(Rung.told(rung), seen.engines) for rung in ladder.rungs)
    verdict = judge(
        rungs,
        is_draining=front.is_draining,
        recent=_recent(seen, ladder.name),
        events=() if isinstance(seen.store, Unknown) else seen.store.events,
        serving_since=_serving_since(seen),
        front_since_ms=front.started_at_ms,
    )
    return Ladder(
        name=ladder.name,
        verdict=verdict,
        rungs=tuple(_with_error(seen, rung) for rung in rungs),
        budget_refused_total=ladder.budget_refused_total,
        traffic=_traffic(seen, ladder.name),
    )


def _serving_since(seen: Seen) -> dict[str, int]:
    """Return since when each slot's engine serves in it, UTC epoch ms; only running ones.

    One that a move brought has run on trial before: it serves since its pin switched.
    """
    children = seen.supervisor.children if seen.supervisor is not None else ()
    pins = {} if isinstance(seen.store, Unknown) else seen.store.pins
    return {  # by name: one that leaves still has the slot, but not its name
        child.name: max(child.since_ms, pins[child.name].since_ms if child.name in pins else 0)
        for child in children
        if child.kind == "engine" and child.phase == "running"
    }


def _told_by_settings(seen: Seen, settings: Settings, config: LadderConfig) -> Ladder:
    pinned = _pinned_names(seen, settings)
    rungs = tuple(_unseen(settings, pinned, at, name) for at, name in enumerate(config.rungs))
    rungs = tuple(_with_error(seen, rung) for rung in rungs)
    return Ladder(
        name=config.name,
        verdict=_without_front(seen, rungs, _recent(seen, config.name)),
        rungs=rungs,
        budget_refused_total=None,
        traffic=_traffic(seen, config.name),
    )


def _pinned_names(seen: Seen, settings: Settings) -> dict[str, str]:
    """Return the version of each slot: the store's where a move decided, else the settings'."""
    pins = {} if isinstance(seen.store, Unknown) else seen.store.pins
    moved = {slot: pin.version.name for slot, pin in pins.items() if pin.is_moved}
    return {**settings.pins, **moved}


def _unseen(settings: Settings, pinned: Mapping[str, str], index: int, name: str) -> Rung:
    """Return a rung of which only its settings are known."""
    endpoint = settings.endpoints.get(name)
    slot = endpoint.pin if endpoint is not None else None
    kind: Literal["engine", "endpoint", "cache"] = "endpoint"
    if name == CACHE_RUNG:
        kind = "cache"
    elif slot is not None:
        kind = "engine"
    return Rung(
        index=index,
        name=name,
        kind=kind,
        slot=slot,
        can_serve=None,
        version_name=pinned.get(slot) if slot is not None else None,
    )


def _with_error(seen: Seen, rung: Rung) -> Rung:
    """Return *rung* with what it failed at last, as the newer of front and store says."""
    if isinstance(seen.store, Unknown):
        return rung
    failed = seen.store.last_failures.get(rung.name)
    known_ms = rung.last_error.at_ms if rung.last_error is not None else 0
    if failed is None or failed.started_at_ms <= known_ms:
        return rung
    error = LastError(
        at_ms=failed.started_at_ms, outcome=failed.outcome, message=failed.error_message or ""
    )
    return replace(rung, last_error=error)


def _traffic(seen: Seen, ladder: str) -> Traffic | Unknown:
    if isinstance(seen.store, Unknown):
        return seen.store
    unnamed = Unknown(reason="the settings file does not name this ladder any more")
    return seen.store.traffic.get(ladder, unnamed)


def _recent(seen: Seen, ladder: str) -> Sequence[CallEnd]:
    return () if isinstance(seen.store, Unknown) else seen.store.recent.get(ladder, ())


def _without_front(seen: Seen, rungs: Sequence[Rung], recent: Sequence[CallEnd]) -> Verdict:
    """Return a ladder's verdict when the front says nothing."""
    if seen.front_state is None and seen.supervisor is None:
        return by_calls(rungs, recent) or _without_ladder(seen)
    return _without_ladder(seen)


def _without_ladder(seen: Seen) -> Verdict:
    """Return the verdict that the processes alone give."""
    if not isinstance(seen.front, Unknown):
        return Verdict(answers=Answers.NO, reason="the settings name no ladder")
    if seen.front_state is not None:
        return Verdict(answers=Answers.UNKNOWN, reason=f"the front is silent: {seen.front.reason}")
    if seen.supervisor is None:
        runs = any(engine.pid is not None for engine in seen.engines.values())
        what = "no front runs here, only an engine" if runs else NOTHING_RUNS
        return Verdict(answers=Answers.NO, reason=f"{what}; start it with `failsoft up`")
    child = next((child for child in seen.supervisor.children if child.kind == "front"), None)
    if child is None:
        return Verdict(answers=Answers.NO, reason="the front does not run")
    why = f" ({child.last_exit})" if child.last_exit else ""
    phase = child.phase.replace("_", " ")
    return Verdict(
        answers=Answers.NO, reason=f"the front is down: {phase}{why}", since_ms=child.since_ms
    )
