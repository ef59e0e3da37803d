"""Lets few engines load at a time, because they load on the same cores.

With two of them loading at once on two cores the first answer takes twice as long.
"""

import asyncio


class Ticket:
    """The right to load; given back when the engine is ready or has ended."""

    def __init__(self, gate: "StartGate | None") -> None:
        self._gate = gate

    def give_back(self) -> None:
        """Let the next one in; giving back twice is fine."""
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.leave()


class StartGate:
    """Admits in the order of asking. One event loop owns it.

    Args:
        width: Loads at a time.
        patience_s: After this long one comes in although others load: a first download takes
            minutes, and what is stored already need not wait for it.
    """

    def __init__(self, *, width: int, patience_s: float) -> None:
        self._places = asyncio.Semaphore(width)
        self._patience_s = patience_s

    async def enter(self) -> Ticket:
        """Wait for a place, at most for the patience there is."""
        try:
            async with asyncio.timeout(self._patience_s):
                await self._places.acquire()
        except TimeoutError:
            return Ticket(None)
        return Ticket(self)

    def leave(self) -> None:
        """Free a place."""
        self._places.release()
