"""Work at low priority: an engine that loads while a neighbour on its cores must answer.

On Linux a thread has a priority of its own and hands it on to threads and processes that
it starts, but cannot raise it again. So the work gets a thread, which ends with it, and
what the caller starts afterwards runs at full priority. Knows nothing of what the work is.
"""

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

NICENESS = 5
"""Added to the caller's: on a full core the neighbour gets three quarters. More would keep a
restarted engine away for minutes while the one below it is busy."""
_LOWEST = 19

_T = TypeVar("_T")


def gently(work: Callable[[], _T]) -> _T:
    """Return what *work* returns, or raise what it raises; call on the main thread.

    Elsewhere than on Linux it runs at the caller's priority. Ctrl-C ends the process at
    once: half-done work on another thread cannot be unwound.
    """
    if sys.platform != "linux":
        return work()
    future: Future[_T] = Future()
    thread = threading.Thread(target=_run, args=(work, future), name="failsoft-load", daemon=True)
    try:
        thread.start()
        return future.result()
    except KeyboardInterrupt:
        os._exit(130)


def _run(work: Callable[[], _T], future: "Future[_T]") -> None:
    try:
        _yield_to_others()
        future.set_result(work())
    except BaseException as exc:  # noqa: BLE001 - the caller's to handle, whatever it is
        future.set_exception(exc)


def _yield_to_others() -> None:
    own = threading.get_native_id()
    with suppress(OSError):  # a sandbox that forbids it must not keep an engine from loading
        niceness = min(os.getpriority(os.PRIO_PROCESS, own) + NICENESS, _LOWEST)
        os.setpriority(os.PRIO_PROCESS, own, niceness)
