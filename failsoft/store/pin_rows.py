"""Pins and moves into rows and back; the only place that knows both."""

import json
from typing import Any

from failsoft.pin_records import MoveKind, MoveState, MoveStep, Pin, PinMove, PinnedVersion


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
    )


def _version(row: Any, side: str) -> PinnedVersion | None:
    name = getattr(row, f"{side}_name")
    if name is None:
        return None
    return PinnedVersion(
        name=name,
        settings_json=getattr(row, f"{side}_settings_json"),
        digest=getattr(row, f"{side}_digest"),
    )
