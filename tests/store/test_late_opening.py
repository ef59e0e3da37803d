"""A database that is down when a program starts: what answers users starts, and finds it later."""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from failsoft.call_records import AttemptRecord, CallRecord
from failsoft.config.settings import StoreConfig
from failsoft.errors import StoreError
from failsoft.reply_records import CachedReply
from failsoft.store import Store, first_use
from failsoft.store.first_use import FirstUse
from tests.store.conftest import PASSWORD, PostgresServer
from tests.store.doorway import Doorway
from tests.store.test_outage import locked
from tests.store.waiting import wait_until

MakeCall = Callable[..., CallRecord]
MakeAttempt = Callable[..., AttemptRecord]
MakeReply = Callable[..., CachedReply]
NOBODY = 65534
"""A user who owns nothing else."""


@pytest.fixture
def doorway(postgres_server: PostgresServer) -> Iterator[Doorway]:
    """Return the way to PostgreSQL, shut."""
    with Doorway(postgres_server.port) as way:
        yield way


@pytest.fixture
def behind(doorway: Doorway, postgres_config: StoreConfig) -> StoreConfig:
    """Return the settings of an empty PostgreSQL database behind *doorway*."""
    name = postgres_config.url.rsplit("/", 1)[1]
    return replace(postgres_config, url=f"postgresql://postgres@127.0.0.1:{doorway.port}/{name}")


def test_what_was_recorded_while_postgresql_was_down_is_written_once_it_is_up(
    doorway: Doorway,
    behind: StoreConfig,
    make_call: MakeCall,
    make_attempt: MakeAttempt,
    make_reply: MakeReply,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its tables are made then, too: nobody had a chance before."""
    with Store(behind, may_wait=True) as store:
        store.recorder.record_call(make_call(call_id="early"))
        store.recorder.record_attempt(make_attempt("early"))
        with pytest.raises(StoreError) as caught:
            store.pins.pins()
        assert store.replies is not None
        with pytest.raises(StoreError):
            store.replies.get("k" * 64)
        wait_until(lambda: store.stats().is_failing)

        doorway.open()

        wait_until(lambda: store.stats().written_total.get("call"))
        store.replies.put(make_reply())
        assert store.flush(10)
        assert store.pins.pins() == {}
        kinds = [event.kind for event in store.reader.events()]
        counts = store.stats()

    assert caught.value.may_pass
    assert "records wait until it works" in caplog.text
    assert "store.recovered" in kinds
    assert counts.dropped_total == {}


def test_without_leave_to_wait_a_database_that_is_down_is_an_error(behind: StoreConfig) -> None:
    """A command has nothing to do without it."""
    with pytest.raises(StoreError, match="Connection refused") as caught:
        Store(behind)

    assert caught.value.may_pass


def test_a_database_of_another_revision_is_told_at_the_start(
    postgres_config: StoreConfig,
) -> None:
    """Whoever deploys must upgrade it: no waiting mends that."""
    with Store(postgres_config) as store, store._database.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0001'")

    with pytest.raises(StoreError, match="run `failsoft db upgrade`"):
        Store(postgres_config, may_wait=True)


def test_a_locked_file_is_opened_once_it_is_free(
    sqlite_config: StoreConfig, tmp_path: Path, make_call: MakeCall
) -> None:
    """Another process upgrades it, or copies it."""
    config = replace(sqlite_config, busy_timeout_s=0.2)
    with locked(tmp_path) as release, Store(config, may_wait=True) as store:
        store.recorder.record_call(make_call(call_id="early"))
        wait_until(lambda: store.stats().is_failing)
        release()
        wait_until(lambda: store.stats().written_total.get("call"))

        assert [call.call_id for call in store.reader.calls()] == ["early"]


def test_a_lock_in_the_way_of_a_first_migration_passes(
    postgres_config: StoreConfig, make_call: MakeCall
) -> None:
    """What the tables' own making met was no outage, and ended the start."""
    config = replace(postgres_config, busy_timeout_s=0.2)
    url = sa.make_url(config.url).set(drivername="postgresql+psycopg", password=PASSWORD)
    engine = sa.create_engine(url)
    with engine.connect() as other:
        other.exec_driver_sql("CREATE TABLE calls (x int)")
        with Store(config, may_wait=True) as store:
            store.recorder.record_call(make_call(call_id="early"))
            wait_until(lambda: store.stats().is_failing)
            other.rollback()
            wait_until(lambda: store.stats().written_total.get("call"))
    engine.dispose()


def test_a_file_that_is_no_database_is_told_at_the_start(
    sqlite_config: StoreConfig, tmp_path: Path
) -> None:
    """It will not become one."""
    (tmp_path / "failsoft.db").write_bytes(b"this is no database at all, and never was" * 100)

    with pytest.raises(StoreError, match="not a database") as caught:
        Store(sqlite_config, may_wait=True)

    assert not caught.value.may_pass


def test_a_folder_in_its_place_is_told_at_the_start(
    sqlite_config: StoreConfig, tmp_path: Path
) -> None:
    """SQLite says of it what it says where a process has too many files open."""
    (tmp_path / "failsoft.db").mkdir()

    with pytest.raises(StoreError, match="that is no file") as caught:
        Store(sqlite_config, may_wait=True)

    assert not caught.value.may_pass


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_a_file_that_this_user_may_not_read_is_told_at_the_start(suffix: str) -> None:
    """Somebody ran failsoft as root once: the front answered, and no record was ever written."""
    with tempfile.TemporaryDirectory() as folder:  # not pytest's: only its owner may enter that
        config = StoreConfig(url=f"sqlite:///{folder}/failsoft.db")
        Store(config).close()
        file = Path(folder, f"failsoft.db{suffix}")
        file.touch()
        file.chmod(0)
        if os.geteuid() == 0:
            for path in (Path(folder), *Path(folder).iterdir()):
                os.chown(path, NOBODY, NOBODY)

        pid = os.fork()
        if pid == 0:
            os._exit(_refused_to_nobody(config))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _refused_to_nobody(config: StoreConfig) -> int:
    """Return 0 if the store says that it lacks a right; for root has every right."""
    if os.geteuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        Store(config, may_wait=True)
    except StoreError as exc:
        return 0 if "may not read" in str(exc) and not exc.may_pass else 2
    return 1


def test_who_waited_for_a_failure_is_not_made_to_wait_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection that nobody answers takes 5 s to fail, and eight threads would queue for it."""
    tries: list[Any] = []
    down = StoreError("down", url="u", may_pass=True)

    def fail() -> None:
        tries.append(None)
        raise down

    first = FirstUse()
    first.put_off(fail, down)
    for _ in range(3):
        with pytest.raises(StoreError, match="down") as caught:
            first.settle()
        assert caught.value.may_pass
    assert tries == []

    monkeypatch.setattr(first_use, "RETRY_S", 0.0)
    with pytest.raises(StoreError):
        first.settle()
    assert len(tries) == 1


def test_work_that_succeeded_is_not_done_again() -> None:
    """And its own transactions do not wait for themselves."""
    done: list[int] = []
    first = FirstUse()

    def work() -> None:
        done.append(1)
        first.settle()

    first._work = work
    first.settle()
    first.settle()

    assert done == [1]
