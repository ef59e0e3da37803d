"""Pins and moves into rows and back; the only place that knows both."""

import json
from dataclasses import asdict
from typing import Any

from failsoft.pin_records import (
    MoveAsk,
    MoveKind,
    MoveState,
    MoveStep,
    Pin,
    PinMove,
    PinnedVersion,
    WantedRollback,
)


def version_values(side: str, version: PinnedVersion) -> dict[str, str | None]:
    """Return the columns of *version*.

    Args:
        side: What they begin with: ``version``, ``left`` or ``to``.
        version: What they hold.
    """
    return {
        f"{side}_name": version.name,
        f"{side}_settings_json": version.settings_json,
        f"{side}_digest": version.digest,
    }


def pin_of(row: Any) -> Pin:
    """Return the pin that a row of ``pins`` holds."""
    version = _version(row, "version")
    assert version is not None
    return Pin(
        slot=row.slot,
        version=version,
        is_moved=row.is_moved,
        move_id=row.move_id,
        since_ms=row.since_ms,
    )


def move_of(row: Any) -> PinMove:
    """Return the move that a row of ``pin_moves`` holds."""
    to = _version(row, "to")
    assert to is not None
    return PinMove(
        move_id=row.move_id,
        slot=row.slot,
        kind=MoveKind(row.kind),
        left=_version(row, "left"),
        to=to,
        who=row.who,
        why=row.why,
        swap=row.swap,
        accept_unproven=row.accept_unproven,
        state=MoveState(row.state),
        steps=tuple(
            MoveStep(state=MoveState(state), at_ms=at_ms)
            for state, at_ms in json.loads(row.steps_json)
        ),
        ended_at_ms=row.ended_at_ms,
        owner=row.owner,
        abort_by=row.abort_by,
        reason=row.reason,
        proof_json=row.proof_json,
        rollback=rollback_of(row.slot, row.rollback_json),
    )


def rollback_json(wanted: WantedRollback) -> str:
    """Return what the row of the move that *wanted* is to follow keeps of it; its slot is that."""
    ask = asdict(wanted.ask)
    del ask["slot"]
    return json.dumps({**ask, "move_id": wanted.move_id})


def rollback_of(slot: str, told: str | None) -> WantedRollback | None:
    """Return what `rollback_json` kept for a move of *slot*; None where nothing is kept."""
    if told is None:
        return None
    raw = json.loads(told)
    move_id = raw.pop("move_id")
    to, kind = PinnedVersion(**raw.pop("to")), MoveKind(raw.pop("kind"))
    return WantedRollback(ask=MoveAsk(slot=slot, kind=kind, to=to, **raw), move_id=move_id)


def _version(row: Any, side: str) -> PinnedVersion | None:
    name = getattr(row, f"{side}_name")
    if name is None:
        return None
    return PinnedVersion(
        name=name,
        settings_json=getattr(row, f"{side}_settings_json"),
        digest=getattr(row, f"{side}_digest"),
    )
