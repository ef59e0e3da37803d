"""The reply cache in SQL: newest row a key, oldest use evicted first.

A put goes through the record writer, so it never blocks a call; until it is
written, this process serves it from memory. Uses are noted in memory and
written now and then: they only order the eviction.
"""

import threading
import time
from collections.abc import Callable

import sqlalchemy as sa

from failsoft.reply_records import CachedReply, ReplyStoreSize, ServedVersion
from failsoft.store.database import Database
from failsoft.store.rows import reply_bytes, short, to_reply
from failsoft.store.schema import replies, served
from failsoft.store.writer import RecordWriter

EVICT_TO_RATIO = 0.9
"""An eviction goes this far below the cap, so that the next put does not evict again."""

_BATCH = 500
_SAY_AGAIN_MS = 60_000
"""Another process may have noted another version meanwhile: what answers is said again."""


class SqlReplyStore:
    """A `failsoft.reply_records.ReplyStore`; thread-safe.

    Args:
        database: Where the rows are.
        writer: Takes the puts; its `on_settled` must call `settled`.
        max_bytes: Reply text to hold at most; soft, see `evict`.
        clock: UTC epoch seconds.
    """

    def __init__(
        self,
        database: Database,
        writer: RecordWriter,
        *,
        max_bytes: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._writer = writer
        self._max_bytes = max_bytes
        self._clock = clock
        self.start_anew()

    def start_anew(self) -> None:
        """Forget what was not written, as a forked child must: its parent writes it."""
        self._lock = threading.Lock()
        self._pending: dict[str, CachedReply] = {}
        self._used: dict[str, int] = {}
        self._served: dict[str, ServedVersion] = {}

    def get(self, key: str) -> CachedReply | None:
        """Return the newest reply under *key*, however old, and count as a use of it.

        Raises:
            StoreError: The database could not be read.
        """
        with self._lock:
            pending = self._pending.get(key)
        if pending is not None:
            return pending
        with self._database.read() as connection:
            found = connection.execute(sa.select(replies).where(replies.c.key == key))
            row = found.mappings().first()
        if row is None:
            return None
        with self._lock:
            self._used[key] = int(self._clock() * 1000)
        return to_reply(dict(row))

    def last_digest(self, source: str) -> str | None:
        """Return the digest that *source* had when a reply of it was last kept; None without one.

        Raises:
            StoreError: The database could not be read.
        """
        with self._lock:
            noted = self._served.get(source)
        if noted is not None:
            return noted.version_digest
        statement = sa.select(served.c.version_digest).where(served.c.source == source)
        with self._database.read() as connection:
            digest: str | None = connection.execute(statement).scalar()
        return digest

    def note_served(self, version: ServedVersion) -> None:
        """Queue which version answers, if that is news; never blocks, never raises."""
        with self._lock:
            known = self._served.get(version.source)
            if known is not None:
                is_same = known.version_digest == version.version_digest
                if version.at_ms - known.at_ms < (_SAY_AGAIN_MS if is_same else 0):
                    return
            self._served[version.source] = version
        self._writer.record_served(version)

    def put(self, reply: CachedReply) -> None:
        """Queue *reply*; never blocks, never raises. One larger than the cap is dropped."""
        if reply_bytes(reply) > self._max_bytes:
            self._writer.drop("reply")
            return
        with self._lock:
            older = self._pending.get(reply.key)
            if older is not None and older.created_at_ms > reply.created_at_ms:
                return
            self._pending[reply.key] = reply
        if not self._writer.record_reply(reply):
            self.settled(reply)

    def settled(self, reply: CachedReply) -> None:
        """Stop serving *reply* from memory: it is written, or lost."""
        with self._lock:
            if self._pending.get(reply.key) is reply:
                del self._pending[reply.key]

    def purge(
        self,
        *,
        tenant: str | None = None,
        version: str | None = None,
        older_than_ms: int | None = None,
    ) -> int:
        """Delete the replies that match every filter given; return how many.

        Raises:
            ValueError: No filter was given.
            StoreError: The database refused, or what was put before could not be written.
        """
        wanted: list[sa.ColumnElement[bool]] = []
        if tenant is not None:
            wanted.append(replies.c.tenant == short(tenant))
        if version is not None:
            wanted.append(replies.c.version_digest == version)
        if older_than_ms is not None:
            wanted.append(replies.c.created_at_ms < older_than_ms)
        if not wanted:
            raise ValueError("give tenant, version or older_than_ms: purge never means everything")
        # A reply that is still queued would come back after the delete.
        if not self._writer.flush(self._database.config.busy_timeout_s):
            raise self._database.error("queued replies are not written yet; purge again")
        with self._database.write() as connection:
            return connection.execute(sa.delete(replies).where(*wanted)).rowcount

    def size(self) -> ReplyStoreSize:
        """Return what is written.

        Raises:
            StoreError: The database could not be read.
        """
        total = sa.func.coalesce(sa.func.sum(replies.c.num_bytes), 0)
        with self._database.read() as connection:
            num, num_bytes = connection.execute(sa.select(sa.func.count(), total)).one()
        return ReplyStoreSize(num_replies=num, num_bytes=int(num_bytes))

    def note_uses(self) -> None:
        """Write the uses since the last time; a use that is lost costs an order, not a reply.

        Raises:
            StoreError: The database refused.
        """
        with self._lock:
            used, self._used = list(self._used.items()), {}
        statement = (
            sa.update(replies)
            .where(replies.c.key == sa.bindparam("used_key"))
            .values(used_at_ms=sa.bindparam("now_ms"))
        )
        for start in range(0, len(used), _BATCH):
            batch = [
                {"used_key": key, "now_ms": now_ms} for key, now_ms in used[start : start + _BATCH]
            ]
            with self._database.write() as connection:
                connection.execute(statement, batch)

    def evict(self) -> int:
        """Delete the replies used longest ago while the cap is passed; return how many.

        Raises:
            StoreError: The database refused.
        """
        over = self.size().num_bytes - self._max_bytes
        if over <= 0:
            return 0
        over += int((1 - EVICT_TO_RATIO) * self._max_bytes)
        num = 0
        while over > 0:
            freed, deleted = self._evict_batch(over)
            if not deleted:
                break
            over -= freed
            num += deleted
        return num

    def _evict_batch(self, over: int) -> tuple[int, int]:
        """Free up to *over* bytes in one short transaction; return bytes and rows freed."""
        oldest = (
            sa.select(replies.c.key, replies.c.num_bytes)
            .order_by(replies.c.used_at_ms, replies.c.num_bytes)
            .limit(_BATCH)
        )
        with self._database.write() as connection:
            freed, keys = 0, []
            for key, num_bytes in connection.execute(oldest):
                if freed >= over:
                    break
                freed += num_bytes
                keys.append(key)
            connection.execute(sa.delete(replies).where(replies.c.key.in_(keys)))
        return freed, len(keys)
