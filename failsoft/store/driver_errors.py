"""What an error of SQLAlchemy or SQLite says: in words, and whether the same may work later."""

import sqlite3

from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

_PASSING_CODES = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PROTOCOL,
    }
)
_PASSING_STATES = frozenset({"08", "53", "55", "57", "58"})
"""PostgreSQL's classes: connection, resources, a lock, an operator (it starts or stops), system."""


def may_pass(exc: SQLAlchemyError | sqlite3.Error) -> bool:
    """Return whether the database is out of reach, locked or full, and not wrong itself."""
    origin = getattr(exc, "orig", None) or exc
    code = getattr(origin, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in _PASSING_CODES
    state = getattr(origin, "sqlstate", None)
    if state:
        return state[:2] in _PASSING_STATES
    return isinstance(exc, OperationalError | InterfaceError | PoolTimeoutError)


def reason(exc: SQLAlchemyError | sqlite3.Error) -> str:
    """Return the driver's first line only: what follows may quote values."""
    origin = getattr(exc, "orig", None) or exc
    lines = str(origin).splitlines()
    return f"{type(origin).__name__}: {lines[0] if lines else 'no message'}"
