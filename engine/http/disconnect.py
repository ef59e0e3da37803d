"""Notice at once that a caller left, while it waits for an answer or reads one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from starlette.types import Receive


class Cancellable(Protocol):
    """Work that nobody may need any more."""

    def cancel(self) -> None:
        """Stop it; again does nothing."""


@asynccontextmanager
async def tell_when_gone(receive: Receive, on_gone: Callable[[], None]) -> AsyncIterator[None]:
    """Call *on_gone* when the caller disconnects within the block.

    The body must have been read: after it, ASGI has only ``http.disconnect`` to say.
    """

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        on_gone()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        await asyncio.wait([watcher])


@asynccontextmanager
async def cancel_when_gone(receive: Receive, work: Cancellable) -> AsyncIterator[None]:
    """Cancel *work* when the caller disconnects, and in any case on leaving."""
    async with tell_when_gone(receive, work.cancel):
        try:
            yield
        finally:
            work.cancel()
