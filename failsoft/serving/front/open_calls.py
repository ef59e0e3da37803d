"""The calls under way, and what ends one early: its caller leaves, or the front stops.

Knows nothing of HTTP. Belongs to one event loop. Units: seconds.
"""

import asyncio
from collections.abc import Callable
from typing import Literal


class OpenCall:
    """One call under way, in the task that answers it.

    Args:
        abort: Drops its caller's connection, whatever has not left yet.
    """

    def __init__(self, abort: Callable[[], None]) -> None:
        self.abort = abort
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self.end: Literal["answered", "left", "stopped"] | None = None
        """What ended it; None while it runs."""

    def leave(self) -> None:
        """Its caller is gone: cancel all that is behind it."""
        self._interrupt("left")

    def stop(self) -> None:
        """The front ends: cancel all that is behind it, its caller is told."""
        self._interrupt("stopped")

    def finish(self) -> None:
        """Its answer is out: nothing interrupts it any more."""
        if self.end is None:
            self.end = "answered"

    def takes_blame(self) -> bool:
        """Return whether the cancellation that came is one of ours; it is then used up."""
        if self.end not in ("left", "stopped"):
            return False
        self._task.uncancel()
        return True

    def _interrupt(self, why: Literal["left", "stopped"]) -> None:
        if self.end is None:
            self.end = why
            self._task.cancel()


class OpenCalls:
    """All calls under way."""

    def __init__(self) -> None:
        self._calls: set[OpenCall] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def __len__(self) -> int:
        return len(self._calls)

    def enter(self, abort: Callable[[], None]) -> OpenCall:
        """Count the running task's call in, until `leave`."""
        call = OpenCall(abort)
        self._calls.add(call)
        self._is_empty.clear()
        return call

    def leave(self, call: OpenCall) -> None:
        """Count *call* out."""
        self._calls.discard(call)
        if not self._calls:
            self._is_empty.set()

    def stop_all(self) -> None:
        """End every call."""
        for call in tuple(self._calls):
            call.stop()

    def abort_all(self) -> None:
        """Drop every caller that does not take its answer's end."""
        for call in tuple(self._calls):
            call.abort()

    async def wait_empty(self, timeout_s: float) -> bool:
        """Wait until there is none; False when that took longer than *timeout_s*."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._is_empty.wait()
        except TimeoutError:
            return False
        return True
