"""The store as one object: open it, record into it, read it, close it."""

import atexit
import logging
import os
import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Self

from failsoft.call_records import Recorder
from failsoft.config.settings import StoreConfig
from failsoft.errors import StoreError
from failsoft.idempotency_records import IdempotencyStore
from failsoft.reply_records import CachedReply, ReplyStore
from failsoft.store.database import Database
from failsoft.store.drift import DriftWatch
from failsoft.store.eval_scores import EvalScores
from failsoft.store.fingerprints import FingerprintStore
from failsoft.store.idempotency import SqlIdempotencyStore
from failsoft.store.migrate import ensure_current
from failsoft.store.pins import PinStore
from failsoft.store.reader import StoreReader
from failsoft.store.replies import SqlReplyStore
from failsoft.store.retention import Retention
from failsoft.store.tally import WriterStats
from failsoft.store.upkeep import Upkeep
from failsoft.store.writer import RecordWriter

_CLOSE_SLACK_S = 5.0
_log = logging.getLogger(__name__)
_open_stores: "weakref.WeakSet[Store]" = weakref.WeakSet()


class Store:
    """An open database with its threads; use it as a context manager.

    Any thread may use it, and so may a forked child: it starts threads and
    connections of its own, and leaves to its parent what the parent queued.

    Args:
        config: Which database, what to keep, how long.
        environ: Where the password is, usually ``os.environ``.
        clock: UTC epoch seconds.
        may_wait: Whether a database that is out of reach, locked or full may be opened later:
            whoever answers users starts without it. Its log says so.

    Raises:
        StoreError: It cannot be opened or migrated.
        ConfigError: The password's variable is not set.
    """

    def __init__(
        self,
        config: StoreConfig,
        *,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
        may_wait: bool = False,
    ) -> None:
        self.config = config
        keeps_replies = config.keep_text != "none"
        self._database = Database(config, environ=os.environ if environ is None else environ)
        try:
            self._bring_up_to_date(may_wait=may_wait)
        except BaseException:
            self._database.dispose()
            raise
        self._drift = DriftWatch(self._database)
        self._writer = RecordWriter(
            self._database,
            queue_records=config.queue_records,
            keeps_text=config.keep_text == "all",
            clock=clock,
            on_settled=self._settled,
            on_batch=self._note_batch,
            on_attempt=self._drift.see,
        )
        self._replies = (
            SqlReplyStore(self._database, self._writer, max_bytes=config.reply_bytes, clock=clock)
            if keeps_replies
            else None
        )
        self._idempotency = SqlIdempotencyStore(
            self._database,
            keep_hours=config.idempotency_hours,
            keeps_text=keeps_replies,
            clock=clock,
        )
        self.retention = Retention(self._database, config, clock=clock)
        self._upkeep = Upkeep(self._database, self.retention, self._replies, drift=self._drift)
        self.reader = StoreReader(self._database)
        self.pins = PinStore(self._database, clock=clock)
        self.fingerprints = FingerprintStore(self._database, clock=clock)
        self.eval_scores = EvalScores(self._database)
        self._database.in_child += [
            self._writer.start_anew,
            self._upkeep.start_anew,
            self._drift.start_anew,
        ]
        if self._replies is not None:
            self._database.in_child.append(self._replies.start_anew)
        _open_stores.add(self)

    @property
    def recorder(self) -> Recorder:
        """Where calls, attempts, events and texts go."""
        return self._writer

    @property
    def replies(self) -> ReplyStore | None:
        """The reply cache; None under ``keep_text = "none"``: there is no cached rung."""
        return self._replies

    @property
    def idempotency(self) -> IdempotencyStore:
        """Who owns an idempotency key."""
        return self._idempotency

    def stats(self) -> WriterStats:
        """Return what this process wrote and dropped."""
        return self._writer.stats()

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that is queued is written or dropped; False when that took too long."""
        return self._writer.flush(timeout_s)

    def close(self) -> None:
        """Write what is queued and let go; what a failing database does not take is dropped.

        Takes at most ``busy_timeout_s`` and a few seconds. Closing twice is fine.
        """
        _open_stores.discard(self)
        self._writer.close(self.config.busy_timeout_s + _CLOSE_SLACK_S)
        self._upkeep.close(_CLOSE_SLACK_S)
        try:
            self._drift.settle()  # what came since the last upkeep
        except StoreError as exc:
            _log.debug("what endpoints reported last is lost: %s", exc)
        self._database.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _bring_up_to_date(self, *, may_wait: bool) -> None:
        try:
            ensure_current(self._database)
        except StoreError as exc:
            if not (may_wait and exc.may_pass):
                raise
            _log.warning("opened without its database; records wait until it works: %s", exc)
            self._database.first_use.put_off(partial(ensure_current, self._database), exc)

    def _settled(self, reply: CachedReply) -> None:
        if self._replies is not None:
            self._replies.settled(reply)

    def _note_batch(self) -> None:
        self._upkeep.note_batch()


@atexit.register
def _close_all() -> None:
    """Write what a program that ends without closing had queued."""
    for store in list(_open_stores):
        store.close()
