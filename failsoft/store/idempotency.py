"""Idempotency keys in SQL: one owner a key, over every process that shares the store.

A key is stored as a hash of tenant and key. Leases end by the clocks of the
processes, so hosts that share a PostgreSQL store should keep time.
"""

import hashlib
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from failsoft.idempotency_records import IdempotencyEntry, IdempotencyState
from failsoft.store.database import Database
from failsoft.store.rows import short
from failsoft.store.schema import idempotency

MAX_KEY_CHARS = 255
WRITE_TIMEOUT_S = 2.0
"""A claim is on the call's path: rather no idempotency than a caller who waits for a lock."""

_HOUR_MS = 3_600_000


class SqlIdempotencyStore:
    """A `failsoft.idempotency_records.IdempotencyStore`; thread-safe.

    Args:
        database: Where the rows are.
        keep_hours: How long a finished key plays its reply back.
        keeps_text: False forgets the reply and keeps only that there was one.
        clock: UTC epoch seconds.
    """

    def __init__(
        self,
        database: Database,
        *,
        keep_hours: float,
        keeps_text: bool,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._keep_ms = int(keep_hours * _HOUR_MS)
        self._keeps_text = keeps_text
        self._clock = clock

    def begin(self, key: str, tenant: str, fingerprint: str, *, lease_s: float) -> IdempotencyEntry:
        """Claim *key* if it is absent or its lease ran out; atomic.

        Raises:
            ValueError: *key* or *lease_s* is out of range.
            StoreError: The database refused; nothing was claimed.
        """
        if not 1 <= len(key) <= MAX_KEY_CHARS:
            raise ValueError(
                f"an idempotency key has 1..{MAX_KEY_CHARS} characters, not {len(key)}"
            )
        if not lease_s > 0:
            raise ValueError(f"lease_s must be above 0, got {lease_s!r}")
        now_ms = int(self._clock() * 1000)
        mine = IdempotencyEntry(
            state=IdempotencyState.STARTED,
            key=key,
            tenant=tenant,
            fingerprint=fingerprint,
            owner=uuid4().hex,
            lease_until_ms=now_ms + int(lease_s * 1000),
        )
        with self._database.write(timeout_s=WRITE_TIMEOUT_S) as connection:
            while True:
                entry = self._claim(connection, mine, now_ms)
                if entry is not None:
                    return entry

    def finish(self, entry: IdempotencyEntry, reply_json: str) -> bool:
        """Keep the reply under a STARTED entry; False when its lease was lost to another.

        Raises:
            ValueError: *entry* is not a STARTED one.
            StoreError: The database refused.
        """
        now_ms = int(self._clock() * 1000)
        values = {
            "owner": None,
            "until_ms": now_ms + self._keep_ms,
            "finished_at_ms": now_ms,
            "reply_json": reply_json if self._keeps_text else None,
        }
        statement = sa.update(idempotency).where(_is_owned(entry)).values(values)
        with self._database.write(timeout_s=WRITE_TIMEOUT_S) as connection:
            return connection.execute(statement).rowcount == 1

    def release(self, entry: IdempotencyEntry) -> None:
        """Forget a STARTED entry; another owner's stays.

        Raises:
            ValueError: *entry* is not a STARTED one.
            StoreError: The database refused.
        """
        statement = sa.delete(idempotency).where(_is_owned(entry))
        with self._database.write(timeout_s=WRITE_TIMEOUT_S) as connection:
            connection.execute(statement)

    def _claim(
        self, connection: sa.Connection, mine: IdempotencyEntry, now_ms: int
    ) -> IdempotencyEntry | None:
        """Insert the key, or say who has it; None when its row went away in between."""
        insert = sqlite.insert if self._database.is_sqlite else postgresql.insert
        values = {
            "key_hash": _hash(mine),
            "tenant": short(mine.tenant),
            "fingerprint": mine.fingerprint,
            "owner": mine.owner,
            "until_ms": mine.lease_until_ms,
        }
        absent = insert(idempotency).values(values).on_conflict_do_nothing()
        if connection.execute(absent.returning(idempotency.c.key_hash)).first() is not None:
            return mine
        is_it = idempotency.c.key_hash == values["key_hash"]
        row = connection.execute(sa.select(idempotency).where(is_it).with_for_update()).first()
        if row is None:
            return None  # PostgreSQL only: its owner released it just now
        is_over = row.until_ms <= now_ms
        if is_over and (row.finished_at_ms is not None or row.fingerprint == mine.fingerprint):
            cleared = {"finished_at_ms": None, "reply_json": None}
            connection.execute(sa.update(idempotency).where(is_it).values(values | cleared))
            return mine
        return _theirs(mine, row)


def _theirs(mine: IdempotencyEntry, row: Any) -> IdempotencyEntry:
    """Return what the owner of a key that is taken left there."""
    state = IdempotencyState.RUNNING if row.finished_at_ms is None else IdempotencyState.DONE
    if row.fingerprint != mine.fingerprint:
        state = IdempotencyState.CONFLICT
    return IdempotencyEntry(
        state=state,
        key=mine.key,
        tenant=mine.tenant,
        fingerprint=mine.fingerprint,
        lease_until_ms=row.until_ms if state is IdempotencyState.RUNNING else None,
        reply_json=row.reply_json if state is IdempotencyState.DONE else None,
    )


def _hash(entry: IdempotencyEntry) -> str:
    """Return the row's key; the length keeps tenant and key from blurring."""
    text = f"{len(entry.tenant)}:{entry.tenant}:{entry.key}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _is_owned(entry: IdempotencyEntry) -> sa.ColumnElement[bool]:
    if entry.state is not IdempotencyState.STARTED or entry.owner is None:
        raise ValueError(f"only a STARTED entry has an owner, this one is {entry.state.value}")
    return sa.and_(idempotency.c.key_hash == _hash(entry), idempotency.c.owner == entry.owner)
