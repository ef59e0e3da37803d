"""What the ladder takes from outside: clocks, chance and sleep; a test brings its own."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Clocks, chance and sleep of one client."""

    clock: Callable[[], float] = time.monotonic
    """Monotonic seconds."""
    wall: Callable[[], float] = time.time
    """Seconds since the epoch, UTC."""
    random: Callable[[], float] = random.random
    """Uniform draw from [0, 1)."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def wall_ms(self) -> int:
        """Return the wall time in whole milliseconds since the epoch."""
        return int(self.wall() * 1000)
