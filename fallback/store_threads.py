"""Blocking store work beside the event loop: waited for only as long as a call can spare.

Knows nothing of SQL. The threads are the client's own: the event loop's would also
resolve host names, and a store that hangs must not keep a call from its endpoint.
Work that has begun cannot be stopped; it goes on by itself. Units: seconds.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from failsoft.errors import StoreError

NUM_THREADS = 8

_T = TypeVar("_T")
_log = logging.getLogger("failsoft.fallback")


class StoreThreads:
    """One client's threads; any event loop may hand in work, and so may a forked child."""

    def __init__(self) -> None:
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._pid = os.getpid()
        self._pool = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="failsoft-store")
        self._lock = threading.Lock()
        self._num_late = 0
        self._started: set[Future[None]] = set()

    async def ask(
        self,
        work: Callable[[], _T],
        *,
        timeout_s: float,
        on_late: Callable[[_T], None] | None = None,
    ) -> _T:
        """Return what *work* returns.

        Args:
            work: Asks the store; raises StoreError.
            timeout_s: How long to wait.
            on_late: Called, on a thread, with the result of work that nobody waited for.

        Raises:
            StoreError: The store failed.
            TimeoutError: It took too long, or work that did holds every thread.
        """
        pool = self._here()
        if self._num_late >= NUM_THREADS:
            raise TimeoutError("work that took too long holds every thread of the store")
        future = pool.submit(work)
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.wrap_future(future)
        except (TimeoutError, asyncio.CancelledError):
            # What has not begun was cancelled with its waiter.
            if not future.cancelled():
                self._note_late(future, on_late)
            raise

    def start(self, work: Callable[[], object], complaint: str) -> Future[None]:
        """Begin *work* that nobody need wait for; *complaint* is logged when it cannot be done."""

        def run() -> None:
            try:
                work()
            except StoreError:
                _log.warning(complaint)

        try:
            future = self._here().submit(run)
        except RuntimeError:  # closed, or the interpreter ends
            _log.warning(complaint)
            future = Future()
            future.set_result(None)
            return future
        self._started.add(future)
        future.add_done_callback(self._started.discard)
        return future

    async def finish(self, *, timeout_s: float) -> None:
        """Wait for what was started here, but no longer than *timeout_s*."""
        self._here()
        under_way = [asyncio.wrap_future(future) for future in tuple(self._started)]
        if under_way:
            await asyncio.wait(under_way, timeout=timeout_s)

    def close(self) -> None:
        """Take no more work, and let each thread go when it is done."""
        self._here().shutdown(wait=False)

    def _here(self) -> ThreadPoolExecutor:
        if self._pid != os.getpid():
            self._begin_anew()
        return self._pool

    def _note_late(self, future: Future[_T], on_late: Callable[[_T], None] | None) -> None:
        def end(done: Future[_T]) -> None:
            with self._lock:
                self._num_late -= 1
            if on_late is not None and done.exception() is None:
                self.start(lambda: on_late(done.result()), "late store work could not be undone")

        with self._lock:
            self._num_late += 1
        future.add_done_callback(end)
