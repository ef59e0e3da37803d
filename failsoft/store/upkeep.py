"""The thread that keeps a store in shape while its process writes.

Timed PASSIVE checkpoints, so that no commit pays for one; a TRUNCATE once it is
quiet; evictions; retention; drift of endpoints. Its own thread, for a checkpoint syncs to the disk
and records must not wait for that.
"""

import logging
import threading
import time
from collections.abc import Callable

from failsoft.errors import StoreError
from failsoft.store.database import Database
from failsoft.store.drift import DriftWatch
from failsoft.store.replies import SqlReplyStore
from failsoft.store.retention import Retention

TICK_S = 2.0
RETENTION_S = 60.0

_RETAIN_S = 0.5
"""Share of a tick that deleting may take: enough to keep up with 5,000 calls a second."""
_BREATH_S = 0.005
"""Between two deletes, so that the record writer gets its turn."""
_QUIET_TICKS = 3
_IDLE_S = 600.0
_log = logging.getLogger(__name__)


class Upkeep:
    """Starts with the first written batch; an idle store wakes it every ten minutes.

    Args:
        database: Whose write-ahead log is checkpointed.
        retention: What deletes old rows.
        replies: What is evicted; None when no reply is kept.
        drift: What settles the names that endpoints reported.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        database: Database,
        retention: Retention,
        replies: SqlReplyStore | None,
        *,
        drift: DriftWatch,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._retention = retention
        self._replies = replies
        self._drift = drift
        self._clock = clock
        self.start_anew()

    def start_anew(self) -> None:
        """Be without a thread, as a forked child is."""
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._retained_s = self._clock()

    def note_batch(self) -> None:
        """Say that something was written; called on the writer's thread only."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="failsoft-upkeep", daemon=True)
            self._thread.start()
        self._woken.set()

    def close(self, timeout_s: float) -> None:
        """Stop the thread."""
        self._closing.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        quiet_ticks = 0
        while not self._closing.is_set():
            is_active = self._woken.wait(TICK_S if quiet_ticks < _QUIET_TICKS else _IDLE_S)
            self._woken.clear()
            if is_active:
                self._closing.wait(TICK_S)  # batches come several a second
            quiet_ticks = 0 if is_active else quiet_ticks + 1
            if self._closing.is_set():
                return
            try:
                self.tick(is_quiet=quiet_ticks == _QUIET_TICKS)
            except StoreError as exc:
                # The writer reports an outage; this only tries again later.
                _log.debug("upkeep waits: %s", exc)
            except Exception:  # noqa: BLE001 - the thread must outlive a bug of ours
                _log.exception("a bug in the store's upkeep")

    def tick(self, *, is_quiet: bool) -> None:
        """Do what is due.

        Args:
            is_quiet: Whether nothing was written for some ticks.

        Raises:
            StoreError: The database refused; the rest is due again at the next tick.
        """
        self._drift.settle()
        if self._replies is not None:
            self._replies.note_uses()
            self._replies.evict()
        if self._clock() - self._retained_s >= RETENTION_S and self._retain():
            self._retained_s = self._clock()
        if is_quiet:
            self._retention.give_back(until=self._woken.is_set)
        else:
            self._database.checkpoint("PASSIVE")

    def _retain(self) -> bool:
        """Delete what is old for at most `_RETAIN_S`; True when nothing is left to delete."""
        until_s = self._clock() + _RETAIN_S
        while self._clock() < until_s:
            if not self._retention.step():
                return True
            if self._closing.wait(_BREATH_S):
                break
        return False
