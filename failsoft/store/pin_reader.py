"""Reads pins and their moves."""

import sqlalchemy as sa

from failsoft.pin_records import Pin, PinMove
from failsoft.store.database import Database
from failsoft.store.pin_rows import move_of, pin_of
from failsoft.store.pin_statements import IS_OPEN
from failsoft.store.schema import pin_moves, pins


class PinReader:
    """What each slot runs, and how that came about; thread-safe.

    Every method raises `StoreError` when the database cannot be read.

    Args:
        database: Where the rows are.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

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
        return next(iter(self._moves(sa.and_(IS_OPEN, pin_moves.c.slot == slot))), None)

    def open_moves(self) -> list[PinMove]:
        """Return every move that is under way, the oldest first."""
        return self._moves(IS_OPEN)

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

    def _moves(self, where: sa.ColumnElement[bool]) -> list[PinMove]:
        some = sa.select(pin_moves).where(where).order_by(pin_moves.c.move_id)
        with self._database.read() as connection:
            return [move_of(row) for row in connection.execute(some)]

    def _known(self, move_id: str) -> PinMove:
        move = self.move(move_id)
        assert move is not None, "moves are never deleted"
        return move
