"""A batch of records in one transaction, and what to do when a row is unfit."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from sqlalchemy.exc import DataError, IntegrityError, ProgrammingError

from failsoft.errors import StoreError
from failsoft.reply_records import CachedReply
from failsoft.store.breath import Breath
from failsoft.store.database import Database
from failsoft.store.numbered import IS_NUMBERED
from failsoft.store.rows import INSERTS, RecordKind, Row

_ROW_STATES = ("22", "23", "54")
"""SQLSTATE classes about one row: bad data, a constraint, a program limit (PostgreSQL, app. A)."""

_MAX_CHUNK = 32
"""Rows in one statement: sending them holds the interpreter's lock for about 0.1 ms."""


Prepared = tuple[RecordKind, Row, CachedReply | None]
"""A row, built once: a batch tried again is the same batch. The record is kept of a reply only,
whose part is told how it ended. No named tuple: those never leave the garbage collector's sight.
"""


class Unfit(NamedTuple):
    """A row that will never be written, and why."""

    item: Prepared
    why: str


class BatchWriter:
    """Inserts prepared rows; knows nothing of queues or threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_numbered = not database.is_sqlite
        self._statements: dict[tuple[RecordKind, int], str] = {}

    def insert(self, batch: Sequence[Prepared], breath: Breath) -> None:
        """Write *batch*, all or nothing; *breath* is taken after each statement.

        Raises:
            StoreError: The database refused.
            OverflowError: A number does not fit its column (SQLite).
            UnicodeError: A text is not UTF-8.
        """
        rows: dict[RecordKind, list[Row]] = {}
        for kind, row, _ in batch:
            rows.setdefault(kind, []).append(row)
        with self._database.write() as connection:
            breath.take_when_due()
            for kind, several in rows.items():
                for chunk in _chunks(_newest(kind, several)):
                    flat = tuple(chain.from_iterable(chunk))
                    connection.exec_driver_sql(
                        self._statement(kind, len(chunk)),
                        flat,
                        execution_options={IS_NUMBERED: self._is_numbered},
                    )
                    breath.take_when_due()

    def _statement(self, kind: RecordKind, num_rows: int) -> str:
        key = (kind, num_rows)
        if key not in self._statements:
            self._statements[key] = INSERTS[kind].statement(num_rows, is_numbered=self._is_numbered)
        return self._statements[key]

    def insert_each(self, batch: Sequence[Prepared], breath: Breath) -> list[Unfit]:
        """Write *batch* row by row and return those that cannot be stored.

        Raises:
            StoreError: The database refused for a reason that is not about a row.
        """
        unfit: list[Unfit] = []
        for item in batch:
            try:
                self.insert([item], breath)
            except (StoreError, OverflowError, UnicodeError) as exc:
                if not is_about_a_row(exc):
                    raise
                unfit.append(Unfit(item, str(exc)))
        return unfit


def is_about_a_row(exc: Exception) -> bool:
    """Return whether trying the same row again must fail again."""
    if not isinstance(exc, StoreError):
        return True
    cause = exc.__cause__
    state = getattr(getattr(cause, "orig", None), "sqlstate", None)
    if state:
        return state[:2] in _ROW_STATES
    # No server spoke: the driver could not bind a value. SQLite never says a state.
    return isinstance(cause, DataError | IntegrityError | ProgrammingError)


def _chunks(rows: list[Row]) -> Iterator[list[Row]]:
    """Yield *rows* in powers of two, largest first: few statements, all of them cached.

    One statement a row would let go of the interpreter's lock at every row, and
    wait 5 ms for it each time while another thread computes.
    """
    start = 0
    while start < len(rows):
        size = min(_MAX_CHUNK, 1 << (len(rows) - start).bit_length() - 1)
        yield rows[start : start + size]
        start += size


def _newest(kind: RecordKind, rows: list[Row]) -> list[Row]:
    """Return one row a key, the newest: PostgreSQL refuses to update a row twice."""
    columns, stamp = INSERTS[kind].columns, INSERTS[kind].stamp
    if stamp is None:
        return rows
    at = columns.index(stamp)
    kept: dict[str, Row] = {}
    for row in rows:
        if row[0] not in kept or row[at] >= kept[row[0]][at]:
            kept[row[0]] = row
    return list(kept.values())
