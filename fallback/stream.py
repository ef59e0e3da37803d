"""One streamed reply, as an async caller reads it."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Self

from failsoft.fallback.call import CallRequest
from failsoft.fallback.chunk import Chunk
from failsoft.fallback.core import Core
from failsoft.fallback.reply import Delta, Origin, Reply

NO_REPLY_YET = "the reply is not whole yet: read the stream to its end first"


class ReplyStream:
    """Deltas of one reply; nothing is asked before the first is read.

    Leaving it (``break`` out of an ``async with``, `aclose`) cancels everything
    behind it. After the last delta `reply` is there.

    Args:
        core: What answers.
        request: What is asked.
        with_usage: Whether `chunks` hands out the usage chunk.
    """

    def __init__(self, core: Core, request: CallRequest, *, with_usage: bool) -> None:
        self._with_usage = with_usage
        self._call = core.stream(request)

    @property
    def reply(self) -> Reply:
        """The whole reply.

        Raises:
            RuntimeError: The stream was not read to its end.
        """
        if self._call.reply is None:
            raise RuntimeError(NO_REPLY_YET)
        return self._call.reply

    @property
    def origin(self) -> Origin | None:
        """Where the reply comes from; None until its first chunks are there."""
        return self._call.origin

    @property
    def is_read(self) -> bool:
        """Whether all is handed out, and `next_chunks` will say so at once."""
        return self._call.is_read

    async def next_chunks(self) -> list[Chunk] | None:
        """Return the OpenAI-shaped chunks that came next, maybe none; None at the end.

        For a server that sends them on: the bytes of each are at hand
        (`failsoft.fallback.chunk.chunk_bytes`). Raises as iterating does; call `aclose` after.
        """
        chunks = await self._call.next()
        if chunks is None or self._with_usage:
            return chunks
        return [chunk for chunk in chunks if chunk["choices"]]

    async def __aiter__(self) -> AsyncIterator[Delta]:
        """Yield the deltas that carry text.

        Raises:
            StreamInterruptedError: It broke after its first content delta.
            FallbackError: Nothing was yielded, no rung could answer.
        """
        # Written out twice rather than stacked: see `failsoft.fallback.call_stream`.
        try:
            while (chunks := await self._call.next()) is not None:
                for chunk in chunks:
                    delta = Delta.of(chunk)
                    if delta:
                        yield delta
        finally:
            await self._call.aclose()  # a ``break`` in the caller's loop ends here

    async def chunks(self) -> AsyncGenerator[dict[str, Any]]:
        """Yield OpenAI-shaped chunks as they came; raises as iterating does."""
        try:
            while (chunks := await self.next_chunks()) is not None:
                for chunk in chunks:
                    yield chunk
        finally:
            await self._call.aclose()

    async def aclose(self) -> None:
        """Leave: whatever still runs for this stream is cancelled."""
        await self._call.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()
