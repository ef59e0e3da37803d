"""Notice at once that a caller left, while it waits for an answer or reads one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Receive

from failsoft.engine.http.generation import Generation


@asynccontextmanager
async def cancel_when_gone(receive: Receive, generation: Generation) -> AsyncIterator[None]:
    """Cancel *generation* when the caller disconnects, and in any case on leaving.

    The body must have been read: after it, ASGI has only ``http.disconnect`` to say.
    """

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        generation.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        generation.cancel()
        watcher.cancel()
        await asyncio.wait([watcher])
