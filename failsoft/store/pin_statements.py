"""The statements that changes of pins are made of, each within a transaction of its caller.

Stamps are UTC epoch milliseconds.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import replace

import sqlalchemy as sa

from failsoft.errors import PinConflictError, PinError
from failsoft.pin_records import MoveAsk, MoveKind, MoveState, Pin, PinMove, PinnedVersion
from failsoft.store.pin_rows import move_of, pin_of, rollback_json, rollback_of, version_values
from failsoft.store.rows import one_line
from failsoft.store.schema import pin_moves, pins

_ID_DIGITS = 12
"""Hex digits of an id that are milliseconds."""

IS_OPEN = pin_moves.c.ended_at_ms.is_(None)


def pinned(connection: sa.Connection, slot: str) -> Pin | None:
    """Return the pin of *slot*; None when none was noted."""
    row = connection.execute(sa.select(pins).where(pins.c.slot == slot)).first()
    return None if row is None else pin_of(row)


def put_pin(connection: sa.Connection, pin: Pin) -> None:
    """Point the slot of *pin* at it."""
    values = version_values("version", pin.version) | {
        "is_moved": pin.is_moved,
        "move_id": pin.move_id,
        "since_ms": pin.since_ms,
    }
    is_it = pins.c.slot == pin.slot
    if connection.execute(sa.update(pins).where(is_it).values(values)).rowcount == 0:
        connection.execute(sa.insert(pins).values(slot=pin.slot, **values))


def insert_move(
    connection: sa.Connection,
    ask: MoveAsk,
    *,
    left: PinnedVersion | None,
    now_ms: int,
    more: Mapping[str, object] | None = None,
) -> str:
    """Note an asked move; return its id.

    Args:
        connection: The transaction.
        ask: What is asked.
        left: What the slot is pinned to.
        now_ms: When.
        more: Columns that say more, or something else.
    """
    move_id = _new_id(connection, now_ms)
    values = {
        "move_id": move_id,
        "slot": ask.slot,
        "kind": ask.kind.value,
        **(version_values("left", left) if left is not None else {}),
        **version_values("to", ask.to),
        "who": one_line(ask.who),
        "why": one_line(ask.why),
        "swap": ask.swap,
        "accept_unproven": ask.accept_unproven,
        "state": MoveState.ASKED.value,
        "steps_json": _steps([(MoveState.ASKED, now_ms)]),
        **(more or {}),
    }
    connection.execute(sa.insert(pin_moves).values(values))
    return move_id


def insert_over(
    connection: sa.Connection,
    ask: MoveAsk,
    *,
    left: PinnedVersion | None,
    now_ms: int,
    proof_json: str | None = None,
) -> str:
    """Note a move that is over as it begins; return its id."""
    over = {
        "state": MoveState.CONFIRMED.value,
        "steps_json": _steps([(MoveState.CONFIRMED, now_ms)]),
        "ended_at_ms": now_ms,
        "proof_json": proof_json,
    }
    return insert_move(connection, ask, left=left, now_ms=now_ms, more=over)


def enter(
    connection: sa.Connection,
    move: PinMove,
    state: MoveState,
    values: Mapping[str, object],
    *,
    now_ms: int,
) -> None:
    """Have *move* enter *state* with *values*.

    Raises:
        PinError: It is no longer in the state in which it was last seen.
    """
    steps = [(step.state, step.at_ms) for step in move.steps]
    entered = {
        **values,
        "state": state.value,
        "steps_json": _steps([*steps, (state, now_ms)]),
    }
    is_it = sa.and_(
        pin_moves.c.move_id == move.move_id, pin_moves.c.state == move.state.value, IS_OPEN
    )
    if connection.execute(sa.update(pin_moves).where(is_it).values(entered)).rowcount != 1:
        raise PinError(
            f"the move of pin {move.slot} is no longer {move.state.value}: another process "
            "went on with it; look with `failsoft pin history`",
            slot=move.slot,
        )


def give_back(connection: sa.Connection, move: PinMove, *, now_ms: int) -> None:
    """Point the pin at what *move* left, if it points at what *move* brought."""
    is_ours = sa.and_(pins.c.slot == move.slot, pins.c.move_id == move.move_id)
    if connection.execute(sa.select(pins.c.slot).where(is_ours)).first() is None:
        return
    confirmed = sa.select(pin_moves).where(
        pin_moves.c.slot == move.slot, pin_moves.c.state == MoveState.CONFIRMED.value
    )
    newest = confirmed.order_by(pin_moves.c.move_id.desc()).limit(1)
    before = connection.execute(newest).first()
    if move.left is None or before is None:
        connection.execute(sa.delete(pins).where(is_ours))
        return
    pin = Pin(
        slot=move.slot,
        version=move.left,
        is_moved=not MoveKind(before.kind).is_by_file,
        move_id=before.move_id,
        since_ms=now_ms,
    )
    put_pin(connection, pin)


def ask_wanted(connection: sa.Connection, move: PinMove, *, now_ms: int) -> None:
    """Ask for the rollback that is to follow *move*, which has ended in this transaction."""
    is_it = pin_moves.c.move_id == move.move_id
    told = connection.execute(sa.select(pin_moves.c.rollback_json).where(is_it)).scalar()
    wanted = rollback_of(move.slot, told)
    if wanted is None:
        return
    pin = pinned(connection, move.slot)
    if pin is not None and _is_known_as(pin.version, wanted.ask.to):
        return
    left = None if pin is None else pin.version
    move_id = insert_move(connection, wanted.ask, left=left, now_ms=now_ms)
    became = rollback_json(replace(wanted, move_id=move_id))
    connection.execute(sa.update(pin_moves).where(is_it).values(rollback_json=became))


def open_move(connection: sa.Connection, slot: str) -> PinMove | None:
    """Return the move of *slot* that is under way."""
    row = connection.execute(sa.select(pin_moves).where(pin_moves.c.slot == slot, IS_OPEN)).first()
    return None if row is None else move_of(row)


def refuse_second(connection: sa.Connection, slot: str) -> None:
    """Let nobody ask for a move of *slot* while one is under way.

    Raises:
        PinConflictError: One is.
    """
    if (first := open_move(connection, slot)) is not None:
        raise conflict_with(first)


def conflict_with(move: PinMove) -> PinConflictError:
    """Return what a second move of its slot is told while *move* is under way."""
    slot = move.slot
    words = f"{move.who} moves it to {move.to.name} already (it is {move.state.value})"
    # After the switch an abort is refused: whoever rolls back must not be sent around.
    if (wanted := move.rollback) is not None:
        words += f", and {wanted.ask.who} rolls it back to {wanted.ask.to.name}"
        then = ", then ask again"
    elif move.state.is_switched:
        to = " --to VERSION" if move.kind.goes_back else ""
        then = f", or leave it at once (`failsoft rollback {slot}{to} --why TEXT`)"
    else:
        then = f" or take it back (`failsoft pin abort {slot}`)"
    return PinConflictError(slot=slot, move=move, words=words, then=then)


def is_same(one: PinnedVersion, other: PinnedVersion) -> bool:
    """Return whether they are one table under one name."""
    return (one.name, one.settings_json) == (other.name, other.settings_json)


def _is_known_as(one: PinnedVersion, other: PinnedVersion) -> bool:
    """Return whether they are the same as far as that can be told without the settings' rules."""
    is_same_digest = one.digest is not None and one.digest == other.digest
    return is_same_digest or is_same(one, other)


def _steps(steps: list[tuple[MoveState, int]]) -> str:
    return json.dumps([[state.value, at_ms] for state, at_ms in steps])


def _new_id(connection: sa.Connection, now_ms: int) -> str:
    """Return an id after every other: those of calls rise with time too (ADR 14)."""
    last: str | None = connection.execute(sa.select(sa.func.max(pin_moves.c.move_id))).scalar()
    after_ms = now_ms if last is None else max(now_ms, int(last[:_ID_DIGITS], 16) + 1)
    return f"{after_ms:0{_ID_DIGITS}x}{secrets.token_hex(10)}"
