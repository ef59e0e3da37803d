"""Carries the engine's events from its thread to the event loop.

One wake-up of the loop per burst: a step that yields a token for each of 64
requests costs one ``call_soon_threadsafe``, not 64.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from failsoft.engine.request import EngineEvent, EventSink

Deliver = Callable[[EngineEvent], None]
"""Called on the event loop; must not block and must not raise."""


class Mailbox:
    """Queue with one reader, the loop, and one writer, the engine's thread.

    It holds what the engine sampled and the loop has not seen yet, so at most
    ``max_tokens`` events of each request: a reader that stalls cannot block the engine.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._events: deque[tuple[Deliver, EngineEvent]] = deque()
        self._is_woken = False

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Deliver on *loop* from now on; called before the first request."""
        self._loop = loop

    def sink(self, deliver: Deliver) -> EventSink:
        """Return a sink for one request's events, to be called on the engine's thread."""

        def post(event: EngineEvent) -> None:
            self._events.append((deliver, event))
            self._wake()

        return post

    def _wake(self) -> None:
        if self._is_woken:
            return
        self._is_woken = True
        assert self._loop is not None, "open() comes before the first request"
        try:
            self._loop.call_soon_threadsafe(self._deliver_all)
        except RuntimeError:  # the loop is closed: nobody is left to tell
            self._events.clear()

    def _deliver_all(self) -> None:
        # Cleared before the count: an event appended after it wakes the loop again.
        self._is_woken = False
        try:
            for _ in range(len(self._events)):
                deliver, event = self._events.popleft()
                deliver(event)
        finally:
            if self._events:  # a bug in one request's code must not hold up the others
                self._wake()
