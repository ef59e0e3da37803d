"""What a client keeps for one event loop."""

import asyncio
from collections.abc import Callable
from typing import Any

from failsoft.fallback.loop_parts import LoopParts


class Connections:
    """A transport that only knows whether it was closed."""

    def __init__(self) -> None:
        self.num_closed = 0

    async def send(self, url: str, **arguments: Any) -> Any:
        """Send nothing."""

    async def aclose(self) -> None:
        """Close, after a turn of the loop as sockets do."""
        await asyncio.sleep(0)
        self.num_closed += 1


def run(act: Callable[[LoopParts], Any]) -> tuple[int, int]:
    """Run *act* with parts on a loop of its own; return how often they were closed and told."""
    connections, ends = Connections(), []

    async def body() -> None:
        parts = LoopParts(connections, on_end=lambda: ends.append(1))
        await act(parts)

    asyncio.run(body())
    return connections.num_closed, len(ends)


def test_a_loop_that_ends_closes_its_connections() -> None:
    """Nobody closed the client: asyncio.run is over, and its sockets are too."""

    async def act(parts: LoopParts) -> None:
        kept.append(parts)

    kept: list[LoopParts] = []

    assert run(act) == (1, 1)


def test_parts_that_were_closed_are_not_closed_again() -> None:
    """Once, and work beside the calls has ended before."""
    ended: list[int] = []

    async def act(parts: LoopParts) -> None:
        async def work() -> None:
            await asyncio.sleep(0.01)
            ended.append(1)

        parts.spawn(work())
        await parts.aclose(timeout_s=5)
        await parts.aclose(timeout_s=5)

    assert run(act) == (1, 1)
    assert ended == [1]


def test_work_that_takes_too_long_is_cancelled() -> None:
    """A close waits no longer than it was told."""
    cancelled: list[int] = []

    async def act(parts: LoopParts) -> None:
        async def work() -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(1)
                raise

        parts.spawn(work())
        await parts.aclose(timeout_s=0.01)

    assert run(act) == (1, 1)
    assert cancelled == [1]
