"""Puts what happens to the processes into the store, where pages and alerts read it.

The store is opened on a thread of its own: a locked database must not hold up restarts.
While it cannot be opened events wait, a bounded number of them.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from failsoft.call_records import EventRecord
from failsoft.config.settings import StoreConfig
from failsoft.errors import FailsoftError

if TYPE_CHECKING:
    from failsoft.store.store import Store

MAX_WAITING = 1000
RETRY_S = 30.0
_CLOSE_S = 5.0


class EventLog:
    """Records events; any thread, never blocks, never raises.

    Args:
        config: Which store.
        environ: Where its password is.
        on_trouble: Told in words, on another thread, when the store cannot be opened.
        retry_s: Seconds until opening it is tried again.
    """

    def __init__(
        self,
        config: StoreConfig,
        *,
        environ: Mapping[str, str],
        on_trouble: Callable[[str], None],
        retry_s: float = RETRY_S,
    ) -> None:
        self._config = config
        self._environ = environ
        self._on_trouble = on_trouble
        self._retry_s = retry_s
        self._queue: SimpleQueue[EventRecord | None] = SimpleQueue()
        self._waiting: deque[EventRecord] = deque(maxlen=MAX_WAITING)
        self._store: Store | None = None
        self._next_try_s = 0.0
        self._thread = threading.Thread(target=self._run, name="failsoft-events", daemon=True)
        self._thread.start()

    def record(self, kind: str, subject: str, **detail: str | float | None) -> None:
        """Record one event.

        Args:
            kind: Such as ``engine.died``.
            subject: The slot or process it happened to.
            detail: Words and numbers, never what a user or a process said.
        """
        at_ms = int(time.time() * 1000)
        detail_json = json.dumps(detail)
        record = EventRecord(kind=kind, at_ms=at_ms, subject=subject, detail_json=detail_json)
        self._queue.put(record)

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Write what waits; a store that does not take it in time loses it."""
        self._queue.put(None)
        self._thread.join(timeout_s)

    # The thread that opens the store.

    def _run(self) -> None:
        self._open()
        while True:
            wait_s = None if self._store else max(0.0, self._next_try_s - time.monotonic())
            try:
                record = self._queue.get(timeout=wait_s)
            except Empty:
                self._open()
                continue
            if record is None:
                break
            self._waiting.append(record)
            self._hand_over()
        if self._store is not None:
            self._store.close()

    def _open(self) -> None:
        from failsoft.store.store import Store  # SQLAlchemy: the children need not wait for it

        self._next_try_s = time.monotonic() + self._retry_s
        try:
            self._store = Store(self._config, environ=self._environ)
        except FailsoftError as exc:
            self._on_trouble(f"events are not recorded for now: {exc}")
            return
        self._hand_over()

    def _hand_over(self) -> None:
        while self._store is not None and self._waiting:
            self._store.recorder.record_event(self._waiting.popleft())
