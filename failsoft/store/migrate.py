"""Brings a database to the revision this code knows, under one lock.

Alembic is imported only when there is something to do: a client that opens an
up-to-date store does not pay for it.
"""

from importlib.resources import as_file, files

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from failsoft.store.database import Database
from failsoft.store.driver_errors import may_pass
from failsoft.store.schema import HEAD

_LOCK_ID = 0x6661696C  # "fail": PostgreSQL's advisory lock for one migration at a time


def current_revision(database: Database) -> str | None:
    """Return the database's revision; None when it has no tables of ours.

    Raises:
        StoreError: The database cannot be read.
    """
    with database.read() as connection:
        return _revision(connection)


def upgrade(database: Database) -> str | None:
    """Run what is missing, all or nothing; return the revision that was there before.

    Raises:
        StoreError: The database refused, or a newer failsoft made it.
    """
    with database.write(foreign_keys=False) as connection:
        return _upgrade(database, connection)


def ensure_current(database: Database) -> None:
    """Upgrade a new database or a SQLite file; refuse to touch a PostgreSQL one in use.

    Its errors say whether they may pass: a database out of reach may, one of another
    revision does not.

    Raises:
        StoreError: It must be upgraded by hand, or a newer failsoft made it.
    """
    revision = current_revision(database)
    if revision == HEAD:
        return
    if revision is None or database.is_sqlite:
        upgrade(database)
        return
    raise database.error(f"it is at revision {revision}, not {HEAD}: run `failsoft db upgrade`")


def _revision(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return None if found is None else str(found)


def _upgrade(database: Database, connection: sa.Connection) -> str | None:
    """Upgrade inside *connection*'s transaction; a second process waits, then finds it done."""
    if not database.is_sqlite:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK_ID})")
    revision = _revision(connection)
    if revision == HEAD:
        return revision
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError

    with as_file(files("failsoft.store") / "migrations") as folder:
        config = Config()
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = connection
        known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
        if revision is not None and revision not in known:
            raise database.error(f"it is at revision {revision}: upgrade failsoft, it is older")
        try:
            command.upgrade(config, "head")
        except (CommandError, SQLAlchemyError) as exc:
            passes = isinstance(exc, SQLAlchemyError) and may_pass(exc)
            said = f"migration failed: {str(exc).splitlines()[0]}"
            raise database.error(said, may_pass=passes) from exc
    return revision
