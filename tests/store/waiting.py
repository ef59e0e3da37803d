"""Waits for what a writer's thread does."""

import time
from collections.abc import Callable
from typing import Any


def wait_until(is_so: Callable[[], Any], *, timeout_s: float = 20) -> None:
    """Return as soon as *is_so*; fail after *timeout_s*."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)
