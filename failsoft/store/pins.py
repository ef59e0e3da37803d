"""Pins and their moves in SQL: of two moves of a slot one wins, over every process.

Each change of a move is one UPDATE that names the state it expects, so that a process that was
stopped for long cannot overwrite what another did meanwhile.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from failsoft.errors import PinError
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
from failsoft.store.pin_reader import PinReader
from failsoft.store.pin_rows import pin_of, rollback_json, version_values
from failsoft.store.pin_statements import (
    IS_OPEN,
    ask_wanted,
    conflict_with,
    enter,
    give_back,
    insert_move,
    insert_over,
    is_same,
    open_move,
    pinned,
    put_pin,
    refuse_second,
)
from failsoft.store.rows import one_line
from failsoft.store.schema import pin_moves, pins

_MAX_REASON_CHARS = 10_000
"""Its end is the next step: nothing that happens is cut."""

_TAKES_ABORT = [state.value for state in MoveState if not state.is_end and not state.is_switched]
_TAKES_ROLLBACK = [state.value for state in MoveState if not state.is_end and state.is_switched]


class PinStore(PinReader):
    """Changes pins and their moves, and reads them; thread-safe.

    Every method raises `StoreError` when the database refuses; nothing was changed then.

    Args:
        database: Where the rows are.
        clock: UTC epoch seconds.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(database)
        self._clock = clock

    # The settings file.

    def note_file_pin(self, slot: str, version: PinnedVersion) -> Pin:
        """Note what the settings file pins, unless a move decided; return the pin that holds.

        A change of it becomes a move of kind ``file`` that is over at once. While a move is
        under way its slot stays as it is: what that move left must still be what it goes back to.
        """
        with self._database.write() as connection:
            before = pinned(connection, slot)
            if before is not None and (
                before.is_moved
                or is_same(before.version, version)
                or open_move(connection, slot) is not None
            ):
                return before
            ask = MoveAsk(
                slot=slot, kind=MoveKind.FILE, to=version, who="settings file", why="its [pins]"
            )
            left = None if before is None else before.version
            now_ms = self._now_ms()
            move_id = insert_over(connection, ask, left=left, now_ms=now_ms)
            pin = Pin(slot=slot, version=version, is_moved=False, move_id=move_id, since_ms=now_ms)
            put_pin(connection, pin)
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
            refuse_second(connection, slot)
            held = sa.select(pins).where(pins.c.slot == slot).with_for_update()
            row = connection.execute(held).first()
            if row is None or pin_of(row) != seen or not seen.is_moved:
                raise PinError(f"pin {slot} was changed at this very moment; ask again", slot=slot)
            behind = sa.select(pin_moves.c.proof_json).where(pin_moves.c.move_id == seen.move_id)
            proof = connection.execute(behind).scalar()
            ask = MoveAsk(slot=slot, kind=MoveKind.FOLLOW_FILE, to=version, who=who, why=why)
            move_id = insert_over(
                connection, ask, left=seen.version, now_ms=self._now_ms(), proof_json=proof
            )
            pin = replace(seen, version=version, is_moved=False, move_id=move_id)
            put_pin(connection, pin)
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
                refuse_second(connection, ask.slot)
                pin = pinned(connection, ask.slot)
                left = None if pin is None else pin.version
                move_id = insert_move(connection, ask, left=left, now_ms=now_ms)
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
            IS_OPEN,
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
        open_one = sa.and_(pin_moves.c.slot == slot, IS_OPEN, pin_moves.c.state.in_(_TAKES_ABORT))
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
            enter(connection, move, state, values, now_ms=self._now_ms())
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
                enter(connection, move, MoveState.SWITCHING, values, now_ms=now_ms)
                pin = Pin(
                    slot=move.slot,
                    version=move.to,
                    is_moved=True,
                    move_id=move.move_id,
                    since_ms=now_ms,
                )
                put_pin(connection, pin)
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
        now_ms = self._now_ms()
        values: dict[str, Any] = {"ended_at_ms": now_ms, "reason": reason}
        if reason is not None:  # it may hold the last words of a process
            values["reason"] = one_line(reason, max_chars=_MAX_REASON_CHARS)
        if proof is not None:
            values["proof_json"] = json.dumps(proof)
        with self._database.write() as connection:
            enter(connection, move, state, values, now_ms=now_ms)
            if state is not MoveState.CONFIRMED:
                give_back(connection, move, now_ms=now_ms)
            ask_wanted(connection, move, now_ms=now_ms)
        return self._known(move.move_id)

    def _conflict(self, slot: str) -> PinError:
        first = self.open_move(slot)
        if first is None:
            return PinError(f"another move of pin {slot} was first, and is over", slot=slot)
        return conflict_with(first)

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)


def _is_second(exc: Exception) -> bool:
    return isinstance(exc.__cause__, IntegrityError)
