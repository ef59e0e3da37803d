"""The SQLite file: who may read it, and how it is set up."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from failsoft.call_records import EventRecord
from failsoft.config.settings import StoreConfig
from failsoft.errors import StoreError
from failsoft.store import Store

EVENT = EventRecord(kind="k", at_ms=1, subject="s")


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Set the process's umask for a while."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    """Return each file's permission bits in octal."""
    return {
        file.name: oct(stat.S_IMODE(file.stat().st_mode))
        for file in folder.iterdir()
        if file.is_file()
    }


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
def test_nobody_else_can_read_the_file_whatever_the_umask(
    sqlite_config: StoreConfig, tmp_path: Path, mask: int
) -> None:
    """Cached replies are users' text; -wal and -shm hold it too."""
    with umask(mask), Store(sqlite_config) as store:
        store.recorder.record_event(EVENT)
        assert store.flush(10)

        assert modes(tmp_path) == dict.fromkeys(
            ("failsoft.db", "failsoft.db-wal", "failsoft.db-shm"), "0o600"
        )


def test_a_file_that_others_can_read_is_tightened(
    sqlite_config: StoreConfig, tmp_path: Path
) -> None:
    """Restored from a backup, or made by another tool."""
    Store(sqlite_config).close()
    (tmp_path / "failsoft.db").chmod(0o644)

    Store(sqlite_config).close()

    assert modes(tmp_path) == {"failsoft.db": "0o600"}


def test_a_missing_folder_is_named_with_the_next_step(tmp_path: Path) -> None:
    """The store does not make folders: a typo in the path would hide."""
    config = StoreConfig(url=f"sqlite:///{tmp_path}/nope/failsoft.db")

    with pytest.raises(StoreError, match=r"there is no folder .*/nope; .*FAILSOFT_HOME") as caught:
        Store(config)

    assert caught.value.url == config.url


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """Nothing is written into it."""
    (tmp_path / "failsoft.db").write_text("not a database at all" * 100)

    with pytest.raises(StoreError, match="file is not a database"):
        Store(StoreConfig(url=f"sqlite:///{tmp_path}/failsoft.db"))

    assert (tmp_path / "failsoft.db").read_text().startswith("not a database")


def test_the_recipes_pragmas_are_set(sqlite_config: StoreConfig) -> None:
    """WAL, NORMAL, foreign keys, incremental auto-vacuum, a bounded WAL."""
    wanted = {
        "journal_mode": "wal",
        "synchronous": 1,
        "foreign_keys": 1,
        "auto_vacuum": 2,
        "journal_size_limit": 64 * 1024**2,
    }
    with Store(sqlite_config) as store, store._database.write() as connection:
        found = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in wanted}

    assert found == wanted


def test_a_reading_connection_cannot_write(sqlite_config: StoreConfig) -> None:
    """A query that a page builds can at worst be slow."""
    with (
        Store(sqlite_config) as store,
        pytest.raises(StoreError, match="readonly"),
        store._database.read() as connection,
    ):
        connection.exec_driver_sql("DELETE FROM calls")


def test_a_reader_does_not_hold_a_writer_up(sqlite_config: StoreConfig) -> None:
    """WAL: a dashboard's slow query and the writer pass each other."""
    with (
        Store(replace(sqlite_config, busy_timeout_s=0.5)) as store,
        store._database.read() as connection,
    ):
        before = connection.exec_driver_sql("SELECT count(*) FROM events").scalar()
        store.recorder.record_event(EVENT)

        assert store.flush(10)
        assert connection.exec_driver_sql("SELECT count(*) FROM events").scalar() == before == 0
        assert len(store.reader.events()) == 1


def test_an_error_shows_no_value_of_the_statement(sqlite_config: StoreConfig) -> None:
    """Parameters are users' text, and errors end up in logs."""
    with (
        Store(sqlite_config) as store,
        pytest.raises(StoreError) as caught,
        store._database.write() as connection,
    ):
        connection.exec_driver_sql("INSERT INTO nowhere VALUES (?)", ("secret words",))

    assert "secret words" not in str(caught.value)
    assert "secret words" not in str(caught.value.__cause__)


def test_the_quiet_tick_cuts_the_write_ahead_log_to_nothing(
    sqlite_config: StoreConfig, tmp_path: Path
) -> None:
    """An idle store is one file of the size it needs."""
    with Store(sqlite_config) as store:
        store.recorder.record_event(EVENT)
        assert store.flush(10)
        wal = tmp_path / "failsoft.db-wal"
        assert wal.stat().st_size > 0

        store._upkeep.tick(is_quiet=True)

        assert wal.stat().st_size == 0
