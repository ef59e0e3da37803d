"""An event loop on a thread of its own, which a sync caller hands work to.

A forked child has no copy of the thread, so the loop is made anew there.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

_T = TypeVar("_T")

JOIN_S = 5.0


class BackgroundLoop:
    """Starts with the first work; any thread may hand some in."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def submit(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Start *work* on the loop and return its future; cancelling that cancels *work*."""
        return asyncio.run_coroutine_threadsafe(work, self.loop())

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run *work* and return its result; whatever interrupts the wait cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop of this process."""
        if self._pid != os.getpid():
            # The parent's thread may have held the lock at the fork, so it is made anew too.
            inherited = (self._loop, self._thread)
            self.__init__()  # type: ignore[misc]
            # Never collected: its selector is the parent's too.
            self._inherited = inherited
        loop = self._loop
        if loop is not None:
            return loop
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=loop.run_forever, name="failsoft-client", daemon=True
                )
                self._thread.start()
                self._loop = loop
            return self._loop

    def close(self) -> None:
        """Cancel what runs, stop the loop and join its thread."""
        if self._loop is None or self._pid != os.getpid():
            return
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        assert self._thread is not None
        self._thread.join(JOIN_S)
        if not self._thread.is_alive():
            self._loop.close()
        self._loop = self._thread = None


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
