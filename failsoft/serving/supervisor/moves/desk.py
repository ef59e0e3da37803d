"""The store's side of moves, on a thread of its own: a locked database must hold up no restart.

SQLAlchemy is imported on that thread alone. While the store cannot be opened moves wait, and
that is said once; nothing else is held up.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from failsoft.config.settings import StoreConfig
from failsoft.errors import FailsoftError, StoreError
from failsoft.pin_records import PinMove

if TYPE_CHECKING:
    from failsoft.store.store import Store

_T = TypeVar("_T")
_CLOSE_S = 5.0


class _Job(NamedTuple):
    work: Callable[["Store"], Any]
    future: "Future[Any]"


class PinDesk:
    """Asks the store, in order, and looks for moves in between.

    Args:
        config: Which store.
        environ: Where its password is.
        on_moves: Given every move that is under way, on the event loop that called `watch`.
        on_holding: Given, there too, the move that put each slot's pin where it is.
        on_trouble: Told in words, on another thread, when the store begins to refuse.
        poll_s: Seconds between two looks for moves.
    """

    def __init__(
        self,
        config: StoreConfig,
        *,
        environ: Mapping[str, str],
        on_moves: Callable[[list[PinMove]], None],
        on_holding: Callable[[Mapping[str, PinMove]], None],
        on_trouble: Callable[[str], None],
        poll_s: float,
    ) -> None:
        self._config = config
        self._environ = environ
        self._on_moves = on_moves
        self._on_holding = on_holding
        self._on_trouble = on_trouble
        self._poll_s = poll_s
        self._watcher: asyncio.AbstractEventLoop | None = None
        self._is_troubled = False
        self._store: Store | None = None
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="failsoft-pins", daemon=True)
        self._thread.start()

    async def do(self, work: Callable[["Store"], _T]) -> _T:
        """Return what *work* returns; it runs on the desk's thread.

        Raises:
            StoreError: The store cannot be opened, or refuses.
            PinError: What *work* asks for cannot be.
        """
        future: Future[_T] = Future()
        self._queue.put(_Job(work, future))
        return await asyncio.wrap_future(future)

    def watch(self) -> None:
        """Look for moves from now on; call on the event loop that is to hear of them."""
        self._watcher = asyncio.get_running_loop()

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Do what waits, then let the store go; one that hangs is left to itself."""
        self._watcher = None
        self._queue.put(None)
        self._thread.join(timeout_s)

    # The thread.

    def _run(self) -> None:
        next_look_s = time.monotonic()
        while True:
            try:
                job = self._queue.get(timeout=max(0.0, next_look_s - time.monotonic()))
            except Empty:
                self._look()
                next_look_s = time.monotonic() + self._poll_s
                continue
            if job is None:
                break
            self._answer(job)
        if self._store is not None:
            self._store.close()

    def _answer(self, job: _Job) -> None:
        if not job.future.set_running_or_notify_cancel():
            return
        try:
            result = job.work(self._opened())
        except FailsoftError as exc:
            self._note_trouble(exc)
            job.future.set_exception(exc)
        except Exception as exc:  # noqa: BLE001 - a bug of ours: told where it is awaited
            job.future.set_exception(exc)
        else:
            self._is_troubled = False
            job.future.set_result(result)

    def _look(self) -> None:
        watcher = self._watcher
        if watcher is None:
            return
        try:
            pins = self._opened().pins
            moves, holding = pins.open_moves(), pins.holding_moves()
        except FailsoftError as exc:
            self._note_trouble(exc)
            return
        self._is_troubled = False
        with suppress(RuntimeError):  # the loop is closed
            watcher.call_soon_threadsafe(self._on_moves, moves)
            watcher.call_soon_threadsafe(self._on_holding, holding)

    def _opened(self) -> "Store":
        if self._store is None:
            from failsoft.store.store import Store

            self._store = Store(self._config, environ=self._environ)
        return self._store

    def _note_trouble(self, exc: FailsoftError) -> None:
        if isinstance(exc, StoreError) and not self._is_troubled:
            self._is_troubled = True
            self._on_trouble(f"pins cannot be moved for now: {exc}")
