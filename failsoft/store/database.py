"""One database: its engines, its transactions, and what a fork does to them.

SQLite by the recipe: WAL, synchronous NORMAL, foreign keys on, BEGIN IMMEDIATE
for writes (a deferred read-then-write fails at once, however long the busy
timeout), incremental auto-vacuum from the first page, file mode 0600. Reads
run on connections of their own that cannot write.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from failsoft.config.secrets import read_secret
from failsoft.config.settings import StoreConfig
from failsoft.errors import StoreError
from failsoft.store.driver_errors import may_pass, reason
from failsoft.store.first_use import FirstUse
from failsoft.store.fork import ForkGate
from failsoft.store.numbered import heed_numbered

JOURNAL_LIMIT_BYTES = 64 * 1024**2
"""What a finished WAL is cut back to."""

_AUTO_CHECKPOINT_PAGES = 10_000
"""A backstop: checkpoints are timed (`failsoft.store.upkeep`), not part of a commit."""
_FILE_MODE = 0o600
_POLL_S = 0.01


class Database:
    """A SQLite file or a PostgreSQL database; any thread, survives a fork.

    Raises:
        StoreError: The file cannot be made, or the URL has no driver here.
        ConfigError: The password's variable is not set.
    """

    def __init__(self, config: StoreConfig, *, environ: Mapping[str, str]) -> None:
        self.config = config
        self.shown_url = config.url
        self.path: Path | None = None
        if config.is_sqlite:
            self.path = Path(config.url.removeprefix("sqlite:///")).resolve()
            self._make_private()
        url = self._url(environ)
        self._writing = self._engine(url, is_reader=False)
        self._reading = self._engine(url, is_reader=True)
        self._write_lock = threading.Lock()
        self.first_use = FirstUse()
        """What must be done before the first transaction; `Store` says what that is."""
        self._gate = ForkGate(before=self.dispose, in_child=self._renew)
        self.in_child: list[Callable[[], None]] = []
        """Called in a forked child, after the database is usable there."""

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a local file."""
        return self.path is not None

    @contextmanager
    def write(
        self, *, timeout_s: float | None = None, foreign_keys: bool = True
    ) -> Iterator[sa.Connection]:
        """Open a write transaction; commit at the end, roll back on any error.

        Args:
            timeout_s: How long to wait for other writers; None takes ``busy_timeout_s``.
            foreign_keys: False for a migration: SQLite rewrites tables, which would
                cascade deletes.

        Raises:
            StoreError: The database refused; ``__cause__`` says why.
        """
        timeout_s = self.config.busy_timeout_s if timeout_s is None else timeout_s
        self.first_use.settle()
        deadline = time.monotonic() + timeout_s
        with (
            self._translated(),
            self._gate.entered(),
            self._turn(timeout_s),
            self._writing.connect() as connection,
        ):
            left_ms = max(1, int((deadline - time.monotonic()) * 1000))
            if self.is_sqlite:
                driver: Any = connection.connection.driver_connection
                driver.execute(f"PRAGMA busy_timeout = {left_ms}").close()
                driver.execute(f"PRAGMA foreign_keys = {int(foreign_keys)}").close()
            with connection.begin():
                if not self.is_sqlite:
                    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {left_ms}")
                yield connection

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Open a short read-only transaction.

        Raises:
            StoreError: The database refused; ``__cause__`` says why.
        """
        self.first_use.settle()
        with self._translated(), self._gate.entered(), self._reading.connect() as connection:
            yield connection

    def checkpoint(self, mode: Literal["PASSIVE", "TRUNCATE"]) -> bool:
        """Move SQLite's WAL into the file; False when a reader or writer was in the way.

        Raises:
            StoreError: The database refused; ``__cause__`` says why.
        """
        if not self.is_sqlite:
            return True
        with self._translated(), self._gate.entered(), self._writing.connect() as connection:
            driver: Any = connection.connection.driver_connection
            driver.execute("PRAGMA busy_timeout = 100").close()
            with closing(driver.execute(f"PRAGMA wal_checkpoint({mode})")) as cursor:
                return bool(cursor.fetchone()[0] == 0)

    def give_back(self, num_pages: int) -> bool:
        """Return up to *num_pages* free pages of a SQLite file to the disk; True: there are more.

        Raises:
            StoreError: The database refused; ``__cause__`` says why.
        """
        if not self.is_sqlite:
            return False
        with (
            self._translated(),
            self._gate.entered(),
            self._turn(self.config.busy_timeout_s),
            self._writing.connect() as connection,
        ):
            driver: Any = connection.connection.driver_connection
            # It frees a page a step, and only a script is stepped to its end.
            driver.executescript(f"PRAGMA incremental_vacuum({num_pages})").close()
            return bool(driver.execute("PRAGMA freelist_count").fetchone()[0])

    def file_bytes(self) -> int | None:
        """Return what a SQLite file and its write-ahead log take; None on PostgreSQL."""
        if self.path is None:
            return None
        return sum(file.stat().st_size for file in self._files()[:2] if file.exists())

    def dispose(self) -> None:
        """Close idle connections; the next transaction opens new ones."""
        self._writing.dispose()
        self._reading.dispose()

    def error(self, reason: str, *, may_pass: bool = False) -> StoreError:
        """Return the error that names this database and *reason*."""
        said = f"the store {self.shown_url} failed: {reason}"
        return StoreError(said, url=self.shown_url, may_pass=may_pass)

    @contextmanager
    def _turn(self, timeout_s: float) -> Iterator[None]:
        """Let this process's SQLite writers queue here: the file's own lock is polled."""
        if not self.is_sqlite:
            yield
            return
        if not self._write_lock.acquire(timeout=timeout_s):
            raise self.error(f"another writer of this process held it for {timeout_s:g} s")
        try:
            yield
        finally:
            self._write_lock.release()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error) as exc:
            raise self.error(reason(exc), may_pass=may_pass(exc)) from exc

    def _renew(self) -> None:
        self._write_lock = threading.Lock()
        self.first_use.renew()
        self._writing.dispose(close=False)  # what a stuck parent thread held is not ours
        self._reading.dispose(close=False)
        for renew in self.in_child:
            renew()

    def _url(self, environ: Mapping[str, str]) -> sa.URL:
        if self.path is not None:
            return sa.URL.create("sqlite", database=str(self.path))
        url = sa.make_url(self.config.url).set(drivername="postgresql+psycopg")
        env_name = self.config.password_env
        if env_name is None:
            return url
        secret = read_secret(env_name, key="store.password_env", environ=environ)
        return url.set(password=secret)

    def _engine(self, url: sa.URL, *, is_reader: bool) -> sa.Engine:
        """Return an engine whose errors never show a parameter: those hold user text."""
        if self.path is None:
            return self._postgres_engine(url, is_reader=is_reader)
        engine = sa.create_engine(url, hide_parameters=True, pool_size=2, max_overflow=30)
        timeout_ms = int(self.config.busy_timeout_s * 1000)

        def on_connect(driver: Any, _record: object) -> None:
            driver.isolation_level = None  # the begin event below says BEGIN, not the driver
            for pragma in _pragmas(timeout_ms, is_reader=is_reader):
                _patiently(driver, pragma, timeout_s=self.config.busy_timeout_s)

        def on_begin(connection: sa.Connection) -> None:
            connection.exec_driver_sql("BEGIN" if is_reader else "BEGIN IMMEDIATE")

        sa.event.listen(engine, "connect", on_connect)
        sa.event.listen(engine, "begin", on_begin)
        return engine

    def _postgres_engine(self, url: sa.URL, *, is_reader: bool) -> sa.Engine:
        options = "-c default_transaction_read_only=on" if is_reader else ""
        try:
            engine = sa.create_engine(
                url,
                hide_parameters=True,
                pool_size=2,
                max_overflow=30,
                pool_pre_ping=True,
                connect_args={
                    "application_name": "failsoft",
                    "connect_timeout": 5,
                    "options": options,
                },
            )
            heed_numbered(engine)
        except ImportError as exc:
            raise self.error('psycopg is missing: pip install "failsoft[postgres]"') from exc
        return engine

    def _make_private(self) -> None:
        """Make the file, or tighten it: SQLite gives its -wal and -shm the same mode."""
        assert self.path is not None
        try:
            try:
                handle = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, _FILE_MODE)
            except FileExistsError:
                self._must_be_readable()
                self._tighten()
            else:
                os.fchmod(handle, _FILE_MODE)  # whatever the umask took away
                os.close(handle)
        except FileNotFoundError as exc:
            raise self.error(
                f"there is no folder {self.path.parent}; see whether FAILSOFT_HOME or store.url "
                "names the right one, or make it"
            ) from exc
        except OSError as exc:
            raise self.error(f"{exc.strerror}; make the folder writable, or set store.url") from exc

    def _must_be_readable(self) -> None:
        """Tell apart what SQLite calls unable to open: a missing right does not pass by itself."""
        if not self._files()[0].is_file():
            raise self.error("that is no file; set store.url")
        for path in self._files():
            # Asked twice: another process that closes may delete a log in between.
            if path.exists() and not os.access(path, os.R_OK) and path.exists():
                raise self.error(f"this user may not read {path.name}; change its owner or mode")

    def _files(self) -> list[Path]:
        return [Path(f"{self.path}{suffix}") for suffix in ("", "-wal", "-shm")]

    def _tighten(self) -> None:
        for path in self._files():
            if path.exists() and path.stat().st_mode & 0o077:
                path.chmod(_FILE_MODE)


def _pragmas(timeout_ms: int, *, is_reader: bool) -> list[str]:
    """Return a SQLite connection's pragmas; auto_vacuum only counts before the first page."""
    pragmas = [f"PRAGMA busy_timeout = {timeout_ms}", "PRAGMA foreign_keys = ON"]
    if is_reader:
        return [*pragmas, "PRAGMA query_only = ON"]
    return [
        *pragmas,
        "PRAGMA auto_vacuum = INCREMENTAL",
        "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = NORMAL",
        f"PRAGMA journal_size_limit = {JOURNAL_LIMIT_BYTES}",
        f"PRAGMA wal_autocheckpoint = {_AUTO_CHECKPOINT_PAGES}",
    ]


def _patiently(driver: Any, pragma: str, *, timeout_s: float) -> None:
    """Run *pragma*; SQLite does not wait for its lock when two processes make a file WAL."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            driver.execute(pragma).close()
            return
        except sqlite3.OperationalError as exc:
            is_busy = exc.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() >= deadline:
                raise
            time.sleep(_POLL_S)
