"""What the store's moves have pinned, as a client knows it without waiting for the store.

The settings file names first pins; a slot that was ever moved goes by the store (`Pin.is_moved`).
A client that was opened before the move must know of it too: what it knows is read again on
the store's threads, seldom and only while it is asked for. Units: seconds, monotonic.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Protocol

from failsoft.errors import StoreError
from failsoft.fallback.store_threads import StoreThreads
from failsoft.pin_records import Pin, PinnedVersion

RENEW_S = 2.0
"""What is known may be this old before a look at it has it read again, beside the call."""
FRESH_S = 0.2
"""No older when it decides whose kept reply answers: that one is waited for."""

_log = logging.getLogger("failsoft.fallback")


class PinReader(Protocol):
    """Where moved pins are kept."""

    def pins(self) -> Mapping[str, Pin]:
        """Return the pin of each slot; blocks.

        Raises:
            StoreError: It cannot be read.
        """


class PinBook:
    """The pins that moves decided; those of the settings file are not in here.

    Call on an event loop, but for `read`. While the store cannot be read, what was known last
    holds.

    Args:
        reader: The store's pins; None where there is no store: nothing was ever moved.
        threads: What asks the store.
        clock: Monotonic seconds.
    """

    def __init__(
        self, reader: PinReader | None, *, threads: StoreThreads, clock: Callable[[], float]
    ) -> None:
        self._reader = reader
        self._threads = threads
        self._clock = clock
        self._moved: Mapping[str, PinnedVersion] = {}
        self._is_troubled = False
        self._read_at_s = float("-inf")
        self._under_way: Future[None] | None = None

    def read(self) -> None:
        """Read the store now; blocks, never raises."""
        if self._reader is None:
            return
        began_s = self._clock()
        try:
            pins = self._reader.pins()
        except StoreError as exc:
            if not self._is_troubled:
                _log.warning("moved pins cannot be read, the last known ones hold: %s", exc)
            self._is_troubled = True
        else:
            self._is_troubled = False
            self._moved = {slot: pin.version for slot, pin in pins.items() if pin.is_moved}
        self._read_at_s = began_s

    def moved(self, slot: str) -> PinnedVersion | None:
        """Return what a move pinned *slot* to; None when the settings file decides."""
        if not self._is_younger(RENEW_S):
            self._renew()
        return self._moved.get(slot)

    async def freshen(self, *, timeout_s: float) -> None:
        """Wait until what is known is at most `FRESH_S` old, or *timeout_s* has passed."""
        if not self._is_younger(FRESH_S):
            await asyncio.wait([asyncio.wrap_future(self._renew())], timeout=timeout_s)

    def begin_anew(self) -> None:
        """Forget, in a forked child, what the parent had under way."""
        self._under_way = None

    def close(self) -> None:
        """Read no more."""
        self._reader = None

    def _is_younger(self, age_s: float) -> bool:
        return self._reader is None or self._clock() - self._read_at_s < age_s

    def _renew(self) -> Future[None]:
        """Begin to read, unless that goes on; a store that hangs holds one thread."""
        if self._under_way is None or self._under_way.done():
            self._under_way = self._threads.start(self.read, "moved pins could not be read")
        return self._under_way
