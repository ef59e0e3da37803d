"""What a client keeps for one event loop, and lets go before that loop ends.

``asyncio.run`` closes the async generators of its loop before it closes the loop
itself. So a generator that waits for nothing but its own close is told in time: a
client used from one ``asyncio.run`` after another leaves no connection behind.
Units: seconds.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine

from failsoft.fallback.single_flight import Flights
from failsoft.fallback.transport import Transport


class LoopParts:
    """Connections, flights and work beside the calls of one event loop; made on it.

    Args:
        transport: Its connections.
        on_end: Called when the loop ends, or the parts are closed.
    """

    def __init__(self, transport: Transport, *, on_end: Callable[[], object]) -> None:
        self.transport = transport
        self.flights = Flights()
        self._tasks: set[asyncio.Task[None]] = set()
        self._num_calls = 0
        self._without_calls = asyncio.Event()
        self._without_calls.set()
        self._on_end = on_end
        self._keeper = self._keep()
        _begin(self._keeper)

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Run *work* beside the calls."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def begin_call(self) -> None:
        """Count one call under way."""
        self._num_calls += 1
        self._without_calls.clear()

    def end_call(self) -> None:
        """Count it out, once its row is written."""
        self._num_calls -= 1
        if self._num_calls == 0:
            self._without_calls.set()

    async def aclose(self, *, timeout_s: float) -> None:
        """Close every connection, and see the calls end that this breaks off.

        Args:
            timeout_s: How long to wait for work beside the calls, and then for the calls; a
                stream that nobody reads never ends.
        """
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._keeper.aclose()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._without_calls.wait()

    async def _keep(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self._on_end()
            await self.transport.aclose()


def _begin(keeper: AsyncGenerator[None]) -> None:
    """Run *keeper* up to its yield, which makes the running loop know it."""
    try:
        keeper.asend(None).send(None)
    except StopIteration:
        return
    raise AssertionError("it waits before its yield")
