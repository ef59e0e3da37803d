"""Stores to test on: a SQLite file, and a database of a real PostgreSQL server."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from failsoft.call_records import AttemptOutcome, AttemptRecord, CallOutcome, CallRecord
from failsoft.config.settings import StoreConfig
from failsoft.reply_records import CachedReply
from failsoft.store import Store

PASSWORD_ENV = "FAILSOFT_TEST_DB_PASSWORD"
PASSWORD = "correct horse@battery/staple"


class PostgresServer(NamedTuple):
    """A running server of this test session."""

    port: int
    run: Callable[[str], None]
    """Runs one SQL statement as its superuser."""


def _as_postgres() -> list[str]:
    """Return the prefix that runs a program unprivileged: the server refuses root."""
    return ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []


def _postgres_programs() -> Path | None:
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return folders[-1].parent if folders else None


def _start(programs: Path, folder: Path, port: int) -> None:
    """Make a cluster in *folder* and start it on 127.0.0.1."""
    as_postgres = _as_postgres()
    password_file = folder / "password"
    password_file.write_text(PASSWORD)
    if as_postgres:
        shutil.chown(folder, "postgres", "postgres")
        shutil.chown(password_file, "postgres", "postgres")
    data = folder / "data"
    initdb = [f"{programs}/initdb", "-D", str(data), "-U", "postgres", "-E", "UTF8", "--locale=C"]
    auth = ["--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={password_file}"]
    subprocess.run(
        [*as_postgres, *initdb, *auth, "--no-sync"], check=True, capture_output=True, cwd=folder
    )
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c fsync=off -k {folder}"
    pg_ctl = [f"{programs}/pg_ctl", "-D", str(data), "-l", f"{folder}/log", "-o", options]
    subprocess.run(
        [*as_postgres, *pg_ctl, "-w", "start"],
        check=True,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Start PostgreSQL once for the session; it listens on 127.0.0.1 only."""
    programs = _postgres_programs()
    if programs is None:
        if os.environ.get("FAILSOFT_REQUIRE_POSTGRES") == "1":
            pytest.fail("FAILSOFT_REQUIRE_POSTGRES=1, but no PostgreSQL server is installed")
        pytest.skip("no PostgreSQL server: apt-get install -y postgresql")
    folder = Path(tempfile.mkdtemp(prefix="failsoft-pg-"))
    port = _free_port()

    def run(sql: str) -> None:
        psql = [f"{programs}/psql", "-h", str(folder), "-p", str(port), "-U", "postgres"]
        subprocess.run(
            [*_as_postgres(), *psql, "-v", "ON_ERROR_STOP=1", "-qc", sql],
            check=True,
            capture_output=True,
            cwd=folder,
        )

    _start(programs, folder, port)
    try:
        yield PostgresServer(port, run)
    finally:
        stop = [f"{programs}/pg_ctl", "-D", f"{folder}/data", "-m", "immediate", "-w", "stop"]
        subprocess.run([*_as_postgres(), *stop], check=True, capture_output=True, cwd=folder)
        shutil.rmtree(folder)


_database_numbers = count(1)


@pytest.fixture
def postgres_config(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> StoreConfig:
    """Return the settings of a new, empty PostgreSQL database."""
    name = f"test_{next(_database_numbers)}"
    postgres_server.run(f"CREATE DATABASE {name}")
    monkeypatch.setenv(PASSWORD_ENV, PASSWORD)
    url = f"postgresql://postgres@127.0.0.1:{postgres_server.port}/{name}"
    return StoreConfig(url=url, password_env=PASSWORD_ENV)


@pytest.fixture
def sqlite_config(tmp_path: Path) -> StoreConfig:
    """Return the settings of a SQLite file that is not there yet."""
    return StoreConfig(url=f"sqlite:///{tmp_path}/failsoft.db")


@pytest.fixture(params=["sqlite", "postgres"])
def store_config(request: pytest.FixtureRequest) -> StoreConfig:
    """Return an empty database's settings; the test runs once on each kind."""
    config: StoreConfig = request.getfixturevalue(f"{request.param}_config")
    return config


class Clock:
    """UTC epoch seconds that stand still until they are moved."""

    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s

    @property
    def now_ms(self) -> int:
        """The time in milliseconds."""
        return int(self.now_s * 1000)


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands still."""
    return Clock()


OpenStore = Callable[..., Store]


@pytest.fixture
def open_store(store_config: StoreConfig, clock: Clock) -> Iterator[OpenStore]:
    """Return what opens a store, with settings changed; all are closed at the end."""
    opened: list[Store] = []

    def open_one(**changes: Any) -> Store:
        store = Store(replace(store_config, **changes), clock=clock)
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def make_call() -> Callable[..., CallRecord]:
    """Return a builder of calls; each field can be given."""
    numbers = count()

    def make(**fields: Any) -> CallRecord:
        defaults: dict[str, Any] = {
            "call_id": f"call-{next(numbers)}",
            "ladder": "chat",
            "tenant": "",
            "started_at_ms": 1_800_000_000_000,
            "outcome": CallOutcome.OK,
            "served_rung": 0,
            "served_endpoint": "primary",
            "version_digest": "d" * 64,
            "num_attempts": 1,
            "ttft_s": 0.1,
            "e2e_s": 0.5,
            "is_stream": True,
            "is_complete": True,
        }
        return CallRecord(**{**defaults, **fields})

    return make


@pytest.fixture
def make_attempt() -> Callable[..., AttemptRecord]:
    """Return a builder of attempts; each field can be given."""

    def make(call_id: str, attempt: int = 0, **fields: Any) -> AttemptRecord:
        defaults: dict[str, Any] = {
            "rung": 0,
            "endpoint": "primary",
            "outcome": AttemptOutcome.OK,
            "started_at_ms": 1_800_000_000_000,
            "was_sent": True,
            "total_s": 0.5,
        }
        return AttemptRecord(call_id=call_id, attempt=attempt, **{**defaults, **fields})

    return make


@pytest.fixture
def make_reply(clock: Clock) -> Callable[..., CachedReply]:
    """Return a builder of cached replies; each field can be given."""

    def make(key: str = "k" * 64, **fields: Any) -> CachedReply:
        defaults: dict[str, Any] = {
            "tenant": "",
            "version_digest": "d" * 64,
            "ladder": "chat",
            "created_at_ms": clock.now_ms,
            "reply_json": '{"text": "hello"}',
        }
        return CachedReply(key=key, **{**defaults, **fields})

    return make
