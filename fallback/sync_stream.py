"""One streamed reply, as a sync caller reads it.

Knows nothing of rungs: the async stream runs on the client's loop, and its chunks
come over a queue.
"""

import asyncio
import queue
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

from failsoft.errors import ClientClosedError
from failsoft.fallback.background_loop import BackgroundLoop
from failsoft.fallback.reply import Delta, Reply
from failsoft.fallback.stream import NO_REPLY_YET, ReplyStream

if TYPE_CHECKING:
    from concurrent.futures import Future


class SyncReplyStream:
    """Deltas of one reply; nothing is asked before the first is read.

    Leaving it (``break`` out of a ``with``, `close`) cancels everything behind it.
    One thread reads one stream.
    """

    def __init__(self, stream: ReplyStream, loop: BackgroundLoop) -> None:
        self._stream = stream
        self._loop = loop
        # Unbounded, yet bounded by one reply: a slow reader must not stall the loop.
        self._chunks: queue.SimpleQueue[dict[str, Any] | BaseException | None] = queue.SimpleQueue()
        self._pump: Future[None] | None = None
        self._is_over = False

    @property
    def reply(self) -> Reply:
        """The whole reply.

        Raises:
            RuntimeError: The stream was not read to its end.
        """
        if not self._is_over:
            raise RuntimeError(NO_REPLY_YET)
        return self._stream.reply

    def __iter__(self) -> Iterator[Delta]:
        """Yield the deltas that carry text; raises as `Client.stream` says."""
        for chunk in self.chunks():
            delta = Delta.of(chunk)
            if delta:
                yield delta

    def chunks(self) -> Iterator[dict[str, Any]]:
        """Yield OpenAI-shaped chunks as they came; raises as iterating does."""
        if self._pump is None and not self._is_over:
            self._pump = self._loop.submit(self._run())
        try:
            while not self._is_over:
                item = self._chunks.get()
                if isinstance(item, dict):
                    yield item
                    continue
                self._is_over = True
                if isinstance(item, asyncio.CancelledError):
                    raise ClientClosedError from None  # nobody else cancels a stream that is read
                if item is not None:
                    raise item
        finally:
            self.close()

    async def _run(self) -> None:
        """Move chunks from the loop to the reader."""
        try:
            async for chunk in self._stream.chunks():
                self._chunks.put(chunk)
        except BaseException as exc:
            self._chunks.put(exc)
            raise
        else:
            self._chunks.put(None)
        finally:
            await self._stream.aclose()

    def close(self) -> None:
        """Leave: whatever still runs for this stream is cancelled, and nothing more is yielded."""
        self._is_over = True
        if self._pump is not None and not self._pump.done():
            self._pump.cancel()

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
