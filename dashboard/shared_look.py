"""One look for everybody who asks at about the same moment; any thread.

Ten open pages cost what one does. Knows nothing of what is looked at. Monotonic seconds.
"""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedLook(Generic[T]):
    """Looks at most once in *max_age_s*; who comes meanwhile waits for that look.

    Args:
        look: Takes the look.
        max_age_s: How old a look may be that is handed out.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        look: Callable[[], T],
        *,
        max_age_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look = look
        self._max_age_s = max_age_s
        self._clock = clock
        self._lock = threading.Lock()
        self._last: tuple[float, T] | None = None

    def __call__(self) -> T:
        """Return the look."""
        with self._lock:
            begun_s = self._clock()
            if self._last is None or begun_s - self._last[0] > self._max_age_s:
                self._last = (begun_s, self._look())
            return self._last[1]

    def between(self, act: Callable[[], None]) -> None:
        """Run *act* while nobody looks; what was seen before it is not handed out any more."""
        with self._lock:
            act()
            self._last = None
