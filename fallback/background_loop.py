"""An event loop on a thread of its own, which a sync caller hands work to.

A forked child has no copy of the thread, so the loop is made anew there.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from failsoft.errors import ClientClosedError

_T = TypeVar("_T")

JOIN_S = 5.0


class BackgroundLoop:
    """Starts with the first work; any thread may hand some in."""

    def __init__(self) -> None:
        self.is_closed = False
        """Whether it takes no more work."""
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def submit(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Start *work* on the loop and return its future; cancelling that cancels *work*.

        Raises:
            ClientClosedError: It was closed.
        """
        with self._own_lock():
            # Under the lock: what is handed to a loop that is about to stop would never end.
            if self.is_closed:
                work.close()
                raise ClientClosedError
            return asyncio.run_coroutine_threadsafe(work, self._running())

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run *work* and return its result; whatever interrupts the wait cancels it.

        Raises:
            ClientClosedError: It was closed, before or meanwhile.
        """
        future = self.submit(work)
        try:
            return future.result()
        except CancelledError:
            raise ClientClosedError from None
        except BaseException:
            future.cancel()
            raise

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Refuse new work, cancel what runs, run *last*, stop the loop and join its thread."""
        with self._own_lock():
            if self.is_closed:
                last.close()
                return
            self.is_closed = True
            loop, thread = self._running(), self._thread
        try:
            asyncio.run_coroutine_threadsafe(_end(last), loop).result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            assert thread is not None
            thread.join(JOIN_S)
            if not thread.is_alive():
                loop.close()

    def _own_lock(self) -> threading.Lock:
        if self._pid != os.getpid():
            # Never collected: the parent's loop has a selector that is the parent's too. Its
            # thread may have held the lock at the fork, so that is made anew as well.
            self._inherited = (self._loop, self._thread)
            self._begin_anew()
        return self._lock

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=loop.run_forever, name="failsoft-client", daemon=True
            )
            self._thread.start()
            self._loop = loop
        return self._loop


async def _end(last: Coroutine[Any, Any, None]) -> None:
    await _cancel_others()
    try:
        await last
    finally:
        await _cancel_others()
        await asyncio.get_running_loop().shutdown_asyncgens()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
