"""What is deleted when: each kind of row at its own age, in short transactions."""

import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import sqlalchemy as sa

from failsoft.config.settings import StoreConfig
from failsoft.store.database import Database
from failsoft.store.rows import short
from failsoft.store.schema import attempts, calls, events, idempotency, replies, served, texts

BATCH_ROWS = 500
"""Rows in one delete: a few milliseconds, so that records do not wait behind it."""

_DAY_MS = 86_400_000
_LEASE_GRACE_MS = 3_600_000
"""A running key whose lease is over may still be finished if nobody took it."""
_FREE_PAGES = 2_000


class _Rule(NamedTuple):
    """Rows of *table* whose *stamp* lies *age_ms* back go."""

    table: sa.Table
    stamp: sa.Column[int]
    age_ms: float

    def is_old(self, now_ms: float) -> sa.ColumnElement[bool]:
        """Return the condition; at age 0 every row goes, also one stamped by a clock ahead."""
        if self.age_ms == 0:
            return sa.true()
        return self.stamp < int(now_ms - self.age_ms)


class Retention:
    """Deletes old rows; any thread, any number of processes.

    Args:
        database: Where the rows are.
        config: Ages, and what text may be kept: text that no longer may be goes at once.
        clock: UTC epoch seconds.
    """

    def __init__(
        self,
        database: Database,
        config: StoreConfig,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._keep_text = config.keep_text
        self._clock = clock
        reply_days = 0 if config.keep_text == "none" else config.reply_days
        text_days = config.text_days if config.keep_text == "all" else 0
        self._rules = (
            _Rule(calls, calls.c.started_at_ms, config.call_days * _DAY_MS),
            _Rule(attempts, attempts.c.started_at_ms, config.call_days * _DAY_MS),
            _Rule(events, events.c.at_ms, config.event_days * _DAY_MS),
            _Rule(texts, texts.c.at_ms, text_days * _DAY_MS),
            _Rule(replies, replies.c.created_at_ms, reply_days * _DAY_MS),
            _Rule(served, served.c.at_ms, reply_days * _DAY_MS),
            _Rule(idempotency, idempotency.c.until_ms, _LEASE_GRACE_MS),
        )

    def step(self) -> Counter[str]:
        """Delete at most `BATCH_ROWS` of each table; return how many, by table.

        Raises:
            StoreError: The database refused.
        """
        now_ms = self._clock() * 1000
        deleted: Counter[str] = Counter()
        for rule in self._rules:
            deleted[rule.table.name] = self._delete(rule.table, rule.is_old(now_ms))
        if self._keep_text == "none":
            deleted["idempotency replies"] = self._forget_idempotency_replies()
        return +deleted

    def run(self) -> Counter[str]:
        """Delete all that is old, and give the room back to the disk.

        Raises:
            StoreError: The database refused; what was deleted before stays deleted.
        """
        deleted: Counter[str] = Counter()
        while step := self.step():
            deleted += step
        self.give_back()
        return deleted

    def forget_tenant(self, tenant: str) -> Counter[str]:
        """Delete every text of *tenant*: cached replies, call words, idempotency keys.

        Raises:
            StoreError: The database refused; what was deleted before stays deleted.
        """
        deleted: Counter[str] = Counter()
        for table in (replies, texts, idempotency):
            while num := self._delete(table, table.c.tenant == short(tenant)):
                deleted[table.name] += num
        return deleted

    def give_back(self, *, until: Callable[[], bool] = lambda: False) -> None:
        """Return free pages and the write-ahead log to the disk (SQLite).

        Args:
            until: Asked between short transactions; True leaves the rest for another time.

        Raises:
            StoreError: The database refused.
        """
        while self._database.give_back(_FREE_PAGES) and not until():
            pass
        self._database.checkpoint("TRUNCATE")

    def _delete(self, table: sa.Table, condition: sa.ColumnElement[bool]) -> int:
        return self._change(table, condition, sa.delete(table))

    def _forget_idempotency_replies(self) -> int:
        has_text = idempotency.c.reply_json.is_not(None)
        return self._change(idempotency, has_text, sa.update(idempotency).values(reply_json=None))

    def _change(
        self,
        table: sa.Table,
        condition: sa.ColumnElement[bool],
        change: sa.Delete | sa.Update,
    ) -> int:
        """Change a batch; look first, for most times there is nothing to take a lock for."""
        key = list(table.primary_key.columns)
        some = sa.select(*key).where(condition).limit(BATCH_ROWS)
        with self._database.read() as connection:
            if connection.execute(some.limit(1)).first() is None:
                return 0
        with self._database.write() as connection:
            whole_key = key[0] if len(key) == 1 else sa.tuple_(*key)
            return connection.execute(change.where(whole_key.in_(some))).rowcount
