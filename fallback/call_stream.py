"""One call whose reply streams: its chunks one after another, its end entered once.

A plain object, not a generator: a generator inside a generator cannot be closed in
order when an event loop shuts down under it. One task reads one stream.
"""

from typing import Protocol

from failsoft.fallback.answer import Answer, KeptAnswer
from failsoft.fallback.call import Call, CallRequest
from failsoft.fallback.call_log import CallLog
from failsoft.fallback.chunk import Chunk
from failsoft.fallback.idempotency import Claim
from failsoft.fallback.ladder import Ladder
from failsoft.fallback.reply import Origin, Reply


class Desk(Protocol):
    """What a stream needs of the client's core."""

    def begin(self, request: CallRequest) -> tuple[Call, Ladder]:
        """Return a new call and its ladder."""

    def log(self, call: Call) -> CallLog:
        """Return what writes the call's row."""

    async def claim(self, call: Call) -> Claim | Reply | None:
        """Claim the call's idempotency key."""

    async def answer(self, call: Call, ladder: Ladder) -> Answer:
        """Return an answer."""

    def keep(self, call: Call, ladder: Ladder, answer: Answer, reply: Reply) -> None:
        """Hand *reply* to the cache."""

    def release(self, held: Claim | Reply | None) -> None:
        """Free an idempotency key."""


class CallStream:
    """One streamed call.

    Args:
        desk: The client's core.
        request: What is asked.
    """

    def __init__(self, desk: Desk, request: CallRequest) -> None:
        self._desk = desk
        self._request = request
        self._call: Call | None = None
        self._ladder: Ladder | None = None
        self._log: CallLog | None = None
        self._held: Claim | Reply | None = None
        self._answer: Answer | None = None
        self._is_over = False
        self.reply: Reply | None = None
        """The whole reply, once it is whole."""

    @property
    def origin(self) -> Origin | None:
        """Where the reply comes from; None until the first chunks are there."""
        return self._answer.origin if self._answer is not None else None

    @property
    def is_read(self) -> bool:
        """Whether all is handed out but the end itself."""
        return self._answer is not None and self._answer.is_read

    async def next(self) -> list[Chunk] | None:
        """Return the chunks that come next, maybe none; None at the end.

        Raises:
            StreamInterruptedError: It broke after its first content delta.
            FallbackError: Nothing was returned before; no rung could answer.
        """
        if self._is_over:
            return None
        try:
            answer = self._answer or await self._begin()
            chunks = None if self._is_over else await answer.next()
        except BaseException as exc:
            await self._end(exc)
            raise
        if chunks is None:
            await self._end(None)
        return chunks

    async def _begin(self) -> Answer:
        call, ladder = self._desk.begin(self._request)
        self._call, self._ladder = call, ladder
        self._log = self._desk.log(call)
        self._held = held = await self._desk.claim(call)
        if isinstance(held, Reply):
            self._answer = KeptAnswer(held)
        else:
            self._answer = await self._desk.answer(call, ladder)
        call.on_content()
        return self._answer

    async def aclose(self) -> None:
        """Leave; a caller may do so right after the last delta: the reply is whole all the same."""
        if not self._is_over:
            await self._end(GeneratorExit())

    async def _end(self, exc: BaseException | None) -> None:
        """Stop, and enter how it ended, once: whole, broken by *exc*, or left.

        A stream may be left by another task while its reader waits.
        """
        is_entered, self._is_over = self._is_over, True
        try:
            if self._answer is not None:
                await self._answer.aclose()
        finally:
            if not is_entered:
                self._enter(exc)
            elif self.reply is None:
                self._desk.release(self._held)

    def _enter(self, exc: BaseException | None) -> None:
        if self._call is None or self._ladder is None or self._log is None:
            return
        if self._answer is not None and self._answer.is_whole:
            self.reply = self._log.reply = self._answer.reply()
            self._desk.keep(self._call, self._ladder, self._answer, self.reply)
        if self.reply is None:
            self._desk.release(self._held)
        elif isinstance(self._held, Claim):
            self._held.finish_beside(self.reply)
        self._log.end(None if self.reply is not None else exc)
