"""Revisions: a new database is made, an old one upgraded, a strange one refused."""

import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from failsoft.config.settings import StoreConfig
from failsoft.errors import StoreError
from failsoft.store import Store
from failsoft.store.database import Database
from failsoft.store.migrate import current_revision, ensure_current, upgrade
from failsoft.store.schema import HEAD, metadata
from tests.store.revisions import upgrade_to


def test_head_is_the_last_revision() -> None:
    """An open store compares with this name and loads no Alembic when it is equal."""
    scripts = ScriptDirectory(str(files("failsoft.store") / "migrations"))

    assert scripts.get_heads() == [HEAD]


def test_the_revisions_make_the_tables_that_the_code_uses(store_config: StoreConfig) -> None:
    """Alembic finds no difference between the database and the tables in code."""
    database = Database(store_config, environ=os.environ)
    upgrade(database)

    with database.read() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), metadata)
    database.dispose()

    assert differences == []


def test_a_database_of_the_first_revision_keeps_its_rows(store_config: StoreConfig) -> None:
    """The indexes change, nothing else does."""
    database = Database(store_config, environ=os.environ)
    with database.write() as connection:
        upgrade_to(connection, "0001")
        connection.exec_driver_sql("INSERT INTO events VALUES ('id', 'kind', 7, 'whom', '{}')")

    before = upgrade(database)
    database.dispose()

    assert before == "0001"
    with Store(store_config) as store:
        assert [event.at_ms for event in store.reader.events()] == [7]


def test_a_new_database_is_made_at_open(store_config: StoreConfig) -> None:
    """No command is needed before the first call; a second open finds it done."""
    with Store(store_config):
        pass

    database = Database(store_config, environ=os.environ)
    revision = current_revision(database)
    again = upgrade(database)
    database.dispose()

    assert (revision, again) == (HEAD, HEAD)


def test_a_database_of_a_newer_failsoft_is_refused(store_config: StoreConfig) -> None:
    """Older code must not write into tables it does not know."""
    with Store(store_config) as store, store._database.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")

    database = Database(store_config, environ=os.environ)
    with pytest.raises(StoreError, match="9999"):
        upgrade(database)
    with pytest.raises(StoreError, match="9999"):
        ensure_current(database)
    database.dispose()


def test_a_postgres_database_in_use_is_upgraded_by_command_only(
    postgres_config: StoreConfig,
) -> None:
    """Other hosts may run older code on it; the error names the command."""
    with Store(postgres_config) as store, store._database.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0000'")

    with pytest.raises(StoreError, match="run `failsoft db upgrade`"):
        Store(postgres_config)


def test_a_failed_migration_leaves_the_database_as_it_was(store_config: StoreConfig) -> None:
    """A table of that name is there already: nothing of the revision stays."""
    database = Database(store_config, environ=os.environ)
    with database.write() as connection:
        connection.exec_driver_sql("CREATE TABLE events (own INTEGER)")

    with pytest.raises(StoreError, match="events"):
        upgrade(database)

    with database.read() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), metadata)
    assert current_revision(database) is None
    database.dispose()
    missing = {item[1].name for item in differences if item[0] == "add_table"}
    assert missing == metadata.tables.keys() - {"events"}


def test_many_processes_may_make_the_database_at_once(store_config: StoreConfig) -> None:
    """Workers that start together: one migrates, the others wait and find it done."""
    code = (
        "import os, sys\n"
        "from failsoft.config.settings import StoreConfig\n"
        "from failsoft.store import Store\n"
        "password_env = sys.argv[2] or None\n"
        "sys.stdin.readline()\n"
        "Store(StoreConfig(url=sys.argv[1], password_env=password_env)).close()\n"
    )
    command = [sys.executable, "-c", code, store_config.url, store_config.password_env or ""]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environ)
        for _ in range(4)
    ]

    errors = []
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write(b"go\n")
        worker.stdin.flush()
    errors = [worker.communicate(timeout=60)[1] for worker in workers]

    assert [worker.returncode for worker in workers] == [0] * 4, errors


def test_foreign_keys_are_off_only_for_the_migration(sqlite_config: StoreConfig) -> None:
    """A table rewritten in batch mode would cascade deletes; a pooled connection is set back."""
    database = Database(sqlite_config, environ={})
    found = []
    for foreign_keys in (True, False, True):
        with database.write(foreign_keys=foreign_keys) as connection:
            found.append(connection.exec_driver_sql("PRAGMA foreign_keys").scalar())
    database.dispose()

    assert found == [1, 0, 1]


def test_an_open_store_at_head_loads_no_alembic(sqlite_config: StoreConfig) -> None:
    """A client pays for migrations only when there are some."""
    Store(sqlite_config).close()
    code = (
        "import sys\n"
        "from failsoft.config.settings import StoreConfig\n"
        "from failsoft.store import Store\n"
        "Store(StoreConfig(url=sys.argv[1])).close()\n"
        "print([name for name in ('alembic', 'torch', 'psycopg') if name in sys.modules])\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}

    done = subprocess.run(
        [sys.executable, "-c", code, sqlite_config.url],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert done.stdout.strip() == "[]"
