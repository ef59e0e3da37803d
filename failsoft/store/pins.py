"""Pins and their moves in SQL: of two moves of a slot one wins, over every process.

Each change of a move is one UPDATE that names the state it expects, so that a process that was
stopped for long cannot overwrite what another did meanwhile.
"""

import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from failsoft.errors import PinConflictError, PinError
from failsoft.pin_records import (
    MoveAsk,
    MoveKind,
    MoveState,
    Pin,
    PinMove,
    PinnedVersion,
    WantedRollback,
)
from failsoft.store.database import Database
from failsoft.store.pin_rows import (
    move_of,
    pin_of,
    rollback_json,
    rollback_of,
    version_values,
)
from failsoft.store.rows import one_line
from failsoft.store.schema import pin_moves, pins

_ID_DIGITS = 12
"""Hex digits of an id that are milliseconds."""

_MAX_REASON_CHARS = 10_000
"""Its end is the next step: nothing that happens is cut."""

_IS_OPEN = pin_moves.c.ended_at_ms.is_(None)
_TAKES_ABORT = [state.value for state in MoveState if not state.is_end and not state.is_switched]
_TAKES_ROLLBACK = [state.value for state in MoveState if not state.is_end and state.is_switched]


class PinStore:
    """What each slot runs, and how that came about; thread-safe.

    Every method raises `StoreError` when the database refuses; nothing was changed then.

    Args:
        database: Where the rows are.
        clock: UTC epoch seconds.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    # Reading.

    def pins(self) -> dict[str, Pin]:
        """Return the pin of each slot that was ever noted here."""
        with self._database.read() as connection:
            rows = connection.execute(sa.select(pins).order_by(pins.c.slot))
            return {row.slot: pin_of(row) for row in rows}

    def move(self, move_id: str) -> PinMove | None:
        """Return one move as it is now."""
        return next(iter(self._moves(pin_moves.c.move_id == move_id)), None)

    def open_move(self, slot: str) -> PinMove | None:
        """Return the move of *slot* that is under way."""
        return next(iter(self._moves(sa.and_(_IS_OPEN, pin_moves.c.slot == slot))), None)

    def open_moves(self) -> list[PinMove]:
        """Return every move that is under way, the oldest first."""
        return self._moves(_IS_OPEN)

    def holding_moves(self) -> dict[str, PinMove]:
        """Return the move that put each slot's pin where it is, by slot."""
        holds = pin_moves.c.move_id.in_(sa.select(pins.c.move_id))
        return {move.slot: move for move in self._moves(holds)}

    def history(self, slot: str | None = None, *, limit: int = 1000) -> list[PinMove]:
        """Return the moves of *slot*, or of all, the newest first; those of the file too."""
        where = sa.true() if slot is None else pin_moves.c.slot == slot
        newest = sa.select(pin_moves).where(where).order_by(pin_moves.c.move_id.desc())
        with self._database.read() as connection:
            return [move_of(row) for row in connection.execute(newest.limit(limit))]

    # The settings file.

    def note_file_pin(self, slot: str, version: PinnedVersion) -> Pin:
        """Note what the settings file pins, unless a move decided; return the pin that holds.

        A change of it becomes a move of kind ``file`` that is over at once. While a move is
        under way its slot stays as it is: what that move left must still be what it goes back to.
        """
        with self._database.write() as connection:
            row = connection.execute(sa.select(pins).where(pins.c.slot == slot)).first()
            before = None if row is None else pin_of(row)
            if before is not None and (
                before.is_moved
                or _is_same(before.version, version)
                or _open_move(connection, slot) is not None
            ):
                return before
            ask = MoveAsk(
                slot=slot, kind=MoveKind.FILE, to=version, who="settings file", why="its [pins]"
            )
            left = None if before is None else before.version
            now_ms = self._now_ms()
            move_id = self._note_over(connection, ask, left=left, now_ms=now_ms)
            pin = Pin(slot=slot, version=version, is_moved=False, move_id=move_id, since_ms=now_ms)
            _put_pin(connection, pin)
            return pin

    def follow_file(
        self, slot: str, version: PinnedVersion, *, who: str, why: str, seen: Pin
    ) -> PinMove:
        """Have the moved *slot* follow the settings file again; return that as the history has it.

        What runs stays: since when, and what was kept as its proof, stay too.

        Args:
            slot: The slot.
            version: What the file says, which is what is pinned, with its digest.
            who: Who wants it.
            why: What for.
            seen: The pin that *version* was compared with.

        Raises:
            PinConflictError: A move of the slot is under way.
            PinError: The pin is no longer what was *seen*, or was never moved.
        """
        with self._database.write() as connection:
            self._refuse_second(connection, slot)
            held = sa.select(pins).where(pins.c.slot == slot).with_for_update()
            row = connection.execute(held).first()
            if row is None or pin_of(row) != seen or not seen.is_moved:
                raise PinError(f"pin {slot} was changed at this very moment; ask again", slot=slot)
            behind = sa.select(pin_moves.c.proof_json).where(pin_moves.c.move_id == seen.move_id)
            proof = connection.execute(behind).scalar()
            ask = MoveAsk(slot=slot, kind=MoveKind.FOLLOW_FILE, to=version, who=who, why=why)
            move_id = self._note_over(
                connection, ask, left=seen.version, now_ms=self._now_ms(), proof_json=proof
            )
            pin = replace(seen, version=version, is_moved=False, move_id=move_id)
            _put_pin(connection, pin)
        return self._known(move_id)

    def note_digest(self, slot: str, name: str, digest: str) -> None:
        """Note the digest that the engine of *slot* reports, where its pin has none yet."""
        lacks = sa.and_(
            pins.c.slot == slot, pins.c.version_name == name, pins.c.version_digest.is_(None)
        )
        with self._database.write() as connection:
            connection.execute(sa.update(pins).where(lacks).values(version_digest=digest))

    # Asking.

    def ask(self, ask: MoveAsk) -> PinMove:
        """Ask for a move; a supervisor carries it out.

        Raises:
            PinConflictError: One of this slot is under way.
        """
        now_ms = self._now_ms()
        try:
            with self._database.write() as connection:
                move_id = _new_id(connection, now_ms)
                row = connection.execute(sa.select(pins).where(pins.c.slot == ask.slot)).first()
                left = None if row is None else pin_of(row).version
                values = self._new_move(move_id, ask, left=left, now_ms=now_ms)
                self._refuse_second(connection, ask.slot)
                connection.execute(sa.insert(pin_moves).values(values))
        except Exception as exc:
            if not _is_second(exc):
                raise
            raise self._conflict(ask.slot) from exc  # PostgreSQL: both asked at once
        return self._known(move_id)

    def ask_rollback(self, move: PinMove, ask: MoveAsk) -> PinMove | None:
        """Have *ask* follow *move*, which has switched: the end of that is the beginning of it.

        Both are one transaction, so nobody comes in between, and it does not matter who of those
        that carry the move out, or asked, is killed. Where the pin is at the target by then, as
        when *move* failed and gave it back, nothing follows.

        Returns:
            The move with `PinMove.rollback`; None when it was over already.

        Raises:
            PinConflictError: Another rollback is to follow it.
            PinError: It has not switched: it takes an abort.
        """
        clean = replace(ask, who=one_line(ask.who), why=one_line(ask.why))
        is_free = sa.and_(
            pin_moves.c.move_id == move.move_id,
            _IS_OPEN,
            pin_moves.c.state.in_(_TAKES_ROLLBACK),
            pin_moves.c.rollback_json.is_(None),
        )
        wanted = rollback_json(WantedRollback(ask=clean))
        with self._database.write() as connection:
            is_taken = connection.execute(
                sa.update(pin_moves).where(is_free).values(rollback_json=wanted)
            ).rowcount
        now = self._known(move.move_id)
        if is_taken:
            return now
        if now.state.is_end:
            return None
        if now.rollback is None:
            raise PinError(
                f"the move of pin {move.slot} is {now.state.value} and has not switched: take it "
                f"back with `failsoft pin abort {move.slot}`",
                slot=move.slot,
            )
        raise conflict_with(now)

    def wish_abort(self, slot: str, *, who: str) -> PinMove:
        """Ask that the move of *slot* be taken back; its supervisor does it.

        Raises:
            PinError: None is under way, or it has switched already.
        """
        open_one = sa.and_(pin_moves.c.slot == slot, _IS_OPEN, pin_moves.c.state.in_(_TAKES_ABORT))
        wish = sa.update(pin_moves).where(open_one).values(abort_by=one_line(who))
        with self._database.write() as connection:
            taken = connection.execute(wish.returning(pin_moves.c.move_id)).scalar()
        if taken is None:
            move = self.open_move(slot)
            what = (
                f"no move of pin {slot} is under way"
                if move is None
                else f"the move of pin {slot} is {move.state} already: use `failsoft rollback "
                f"{slot} --why TEXT`, which does not wait for its end"
            )
            raise PinError(what, slot=slot)
        return self._known(taken)

    def end_orphan(self, slot: str, *, who: str) -> PinMove:
        """End the move of *slot* whose supervisor will never come back to it.

        One that lives all the same finds that out at its next step, and puts everything back.

        Raises:
            PinError: None is under way, or its supervisor went on with it this moment.
        """
        move = self.open_move(slot)
        if move is None:
            raise PinError(f"no move of pin {slot} is under way", slot=slot)
        back = "; the pin went back" if move.state.is_switched else ""
        owner = move.owner or "no `failsoft up`"
        return self.end(
            move,
            MoveState.FAILED if move.state.is_switched else MoveState.UNDONE,
            reason=f"{one_line(who)} ended it while {move.state.value}: {owner} had it{back}",
        )

    # Carrying out.

    def claim(self, move_id: str, *, owner: str) -> PinMove | None:
        """Take an asked move on; None when it is another's, or taken back."""
        is_free = sa.and_(
            pin_moves.c.move_id == move_id,
            pin_moves.c.state == MoveState.ASKED.value,
            pin_moves.c.owner.is_(None),
        )
        with self._database.write() as connection:
            claimed = connection.execute(
                sa.update(pin_moves).where(is_free).values(owner=owner)
            ).rowcount
        return self._known(move_id) if claimed else None

    def advance(
        self,
        move: PinMove,
        state: MoveState,
        *,
        to: PinnedVersion | None = None,
        proof: Mapping[str, object] | None = None,
    ) -> PinMove:
        """Enter *state*, which neither ends nor switches; return the move as it is then.

        Args:
            move: As it was last seen; its state must still hold.
            state: The next one.
            to: The target with what was learnt of it.
            proof: Replaces what is kept as proof.

        Raises:
            PinError: Somebody else moved on with it.
        """
        if state.is_end or state is MoveState.SWITCHING:
            raise ValueError(f"{state.value} has a method of its own")
        values: dict[str, Any] = {} if to is None else version_values("to", to)
        if proof is not None:
            values["proof_json"] = json.dumps(proof)
        with self._database.write() as connection:
            self._enter(connection, move, state, values)
        return self._known(move.move_id)

    def switch(self, move: PinMove, *, proof: Mapping[str, object]) -> PinMove:
        """Point the pin at the new version, unless an abort came first.

        Returns:
            The move: switching, or still in its old state with `PinMove.abort_by` set.

        Raises:
            PinError: Somebody else moved on with it.
        """
        with self._database.write() as connection:
            now_ms = self._now_ms()
            abort = sa.select(pin_moves.c.abort_by).where(pin_moves.c.move_id == move.move_id)
            if connection.execute(abort.with_for_update()).scalar() is None:
                values = {"proof_json": json.dumps(proof)}
                self._enter(connection, move, MoveState.SWITCHING, values)
                pin = Pin(
                    slot=move.slot,
                    version=move.to,
                    is_moved=True,
                    move_id=move.move_id,
                    since_ms=now_ms,
                )
                _put_pin(connection, pin)
        return self._known(move.move_id)

    def end(
        self,
        move: PinMove,
        state: MoveState,
        *,
        reason: str | None = None,
        proof: Mapping[str, object] | None = None,
    ) -> PinMove:
        """End *move*; one that was switched and is not confirmed gives its pin back.

        A rollback that is to follow it is asked for in the same moment (`ask_rollback`).

        Raises:
            PinError: Somebody else moved on with it.
        """
        if not state.is_end:
            raise ValueError(f"{state.value} is no end")
        if state is MoveState.CONFIRMED and not move.state.is_switched:
            raise ValueError("only what has switched is confirmed")
        values: dict[str, Any] = {"ended_at_ms": self._now_ms(), "reason": reason}
        if reason is not None:  # it may hold the last words of a process
            values["reason"] = one_line(reason, max_chars=_MAX_REASON_CHARS)
        if proof is not None:
            values["proof_json"] = json.dumps(proof)
        with self._database.write() as connection:
            self._enter(connection, move, state, values)
            if state is not MoveState.CONFIRMED:
                self._give_back(connection, move)
            self._ask_wanted(connection, move)
        return self._known(move.move_id)

    def _ask_wanted(self, connection: sa.Connection, move: PinMove) -> None:
        """Ask for the rollback that is to follow *move*, which has ended in this transaction."""
        is_it = pin_moves.c.move_id == move.move_id
        told = connection.execute(sa.select(pin_moves.c.rollback_json).where(is_it)).scalar()
        wanted = rollback_of(move.slot, told)
        if wanted is None:
            return
        row = connection.execute(sa.select(pins).where(pins.c.slot == move.slot)).first()
        left = None if row is None else pin_of(row).version
        if left is not None and _is_known_as(left, wanted.ask.to):
            return
        now_ms = self._now_ms()
        move_id = _new_id(connection, now_ms)
        values = self._new_move(move_id, wanted.ask, left=left, now_ms=now_ms)
        connection.execute(sa.insert(pin_moves).values(values))
        became = rollback_json(replace(wanted, move_id=move_id))
        connection.execute(sa.update(pin_moves).where(is_it).values(rollback_json=became))

    def _give_back(self, connection: sa.Connection, move: PinMove) -> None:
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
            since_ms=self._now_ms(),
        )
        _put_pin(connection, pin)

    def _enter(
        self,
        connection: sa.Connection,
        move: PinMove,
        state: MoveState,
        values: dict[str, Any],
    ) -> None:
        steps = [(step.state, step.at_ms) for step in move.steps]
        values |= {
            "state": state.value,
            "steps_json": _steps([*steps, (state, self._now_ms())]),
        }
        is_it = sa.and_(
            pin_moves.c.move_id == move.move_id, pin_moves.c.state == move.state.value, _IS_OPEN
        )
        if connection.execute(sa.update(pin_moves).where(is_it).values(values)).rowcount != 1:
            raise PinError(
                f"the move of pin {move.slot} is no longer {move.state.value}: another process "
                "went on with it; look with `failsoft pin history`",
                slot=move.slot,
            )

    def _refuse_second(self, connection: sa.Connection, slot: str) -> None:
        if (first := _open_move(connection, slot)) is not None:
            raise conflict_with(first)

    def _conflict(self, slot: str) -> PinError:
        first = self.open_move(slot)
        if first is None:
            return PinError(f"another move of pin {slot} was first, and is over", slot=slot)
        return conflict_with(first)

    def _moves(self, where: sa.ColumnElement[bool]) -> list[PinMove]:
        some = sa.select(pin_moves).where(where).order_by(pin_moves.c.move_id)
        with self._database.read() as connection:
            return [move_of(row) for row in connection.execute(some)]

    def _known(self, move_id: str) -> PinMove:
        move = self.move(move_id)
        assert move is not None, "moves are never deleted"
        return move

    def _new_move(
        self, move_id: str, ask: MoveAsk, *, left: PinnedVersion | None, now_ms: int
    ) -> dict[str, Any]:
        return {
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
        }

    def _note_over(
        self,
        connection: sa.Connection,
        ask: MoveAsk,
        *,
        left: PinnedVersion | None,
        now_ms: int,
        proof_json: str | None = None,
    ) -> str:
        """Note a move that is over as it begins; return its id."""
        move_id = _new_id(connection, now_ms)
        values = self._new_move(move_id, ask, left=left, now_ms=now_ms)
        values |= {
            "state": MoveState.CONFIRMED.value,
            "steps_json": _steps([(MoveState.CONFIRMED, now_ms)]),
            "ended_at_ms": now_ms,
            "proof_json": proof_json,
        }
        connection.execute(sa.insert(pin_moves).values(values))
        return move_id

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)


def _open_move(connection: sa.Connection, slot: str) -> PinMove | None:
    row = connection.execute(sa.select(pin_moves).where(pin_moves.c.slot == slot, _IS_OPEN)).first()
    return None if row is None else move_of(row)


def _is_same(one: PinnedVersion, other: PinnedVersion) -> bool:
    return (one.name, one.settings_json) == (other.name, other.settings_json)


def _is_known_as(one: PinnedVersion, other: PinnedVersion) -> bool:
    """Return whether they are the same as far as that can be told without the settings' rules."""
    is_same_digest = one.digest is not None and one.digest == other.digest
    return is_same_digest or _is_same(one, other)


def _put_pin(connection: sa.Connection, pin: Pin) -> None:
    values = version_values("version", pin.version) | {
        "is_moved": pin.is_moved,
        "move_id": pin.move_id,
        "since_ms": pin.since_ms,
    }
    is_it = pins.c.slot == pin.slot
    if connection.execute(sa.update(pins).where(is_it).values(values)).rowcount == 0:
        connection.execute(sa.insert(pins).values(slot=pin.slot, **values))


def _steps(steps: list[tuple[MoveState, int]]) -> str:
    return json.dumps([[state.value, at_ms] for state, at_ms in steps])


def _is_second(exc: Exception) -> bool:
    return isinstance(exc.__cause__, IntegrityError)


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


def _new_id(connection: sa.Connection, now_ms: int) -> str:
    """Return an id after every other: those of calls rise with time too (ADR 14)."""
    last: str | None = connection.execute(sa.select(sa.func.max(pin_moves.c.move_id))).scalar()
    after_ms = now_ms if last is None else max(now_ms, int(last[:_ID_DIGITS], 16) + 1)
    return f"{after_ms:0{_ID_DIGITS}x}{secrets.token_hex(10)}"
