"""Statements with many parameters on PostgreSQL, numbered ``$1``, ``$2`` and so on.

psycopg reads a statement with ``%s`` through before it sends it, and remembers what it read
for at most 50 parameters. With the 640 of 32 calls it reads for 1.5 ms each time, and holds
the interpreter's lock for as long. A numbered statement is sent as it is, in 0.2 ms.
"""

from typing import Any

import sqlalchemy as sa

IS_NUMBERED = "failsoft_is_numbered"
"""Execution option: the statement's parameters are ``$1`` and on, not ``%s``."""


def heed_numbered(engine: sa.Engine) -> None:
    """Heed `IS_NUMBERED` on *engine*, which is PostgreSQL's.

    Raises:
        ImportError: psycopg is missing.
    """
    from psycopg import RawCursor

    def on_execute(cursor: Any, statement: str, values: Any, context: Any) -> bool:
        if not context.execution_options.get(IS_NUMBERED):
            return False
        with RawCursor(cursor.connection) as raw:
            raw.execute(statement.encode(), values)
        return True

    sa.event.listen(engine, "do_execute", on_execute)
