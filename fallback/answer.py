"""An answer a rung gave: a live one that may still stream, or one out of the cache.

From the first content delta on a live answer is committed: whatever breaks it then
is the caller's typed error, never another rung's text.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from failsoft.errors import RungFailedError, StreamInterruptedError
from failsoft.fallback.assembly import Assembly
from failsoft.fallback.attempt import Attempt
from failsoft.fallback.call import Call
from failsoft.fallback.choice import chunks_of
from failsoft.fallback.chunk import Chunk
from failsoft.fallback.endpoint import Version
from failsoft.fallback.failure import Failure, cause_of
from failsoft.fallback.reply import Origin, Reply, Usage

Settle = Callable[[Failure | BaseException | None], Awaitable[None]]
"""Told once how the attempt ended: None is well, an exception is the caller leaving."""


class Answer(Protocol):
    """What the ladder found."""

    async def next(self) -> list[Chunk] | None:
        """Return the chunks that come next, maybe none; None at the end.

        Raises:
            StreamInterruptedError: It broke.
        """

    def reply(self) -> Reply:
        """Return the whole reply; only once it is whole."""

    @property
    def origin(self) -> Origin:
        """Where it comes from; known as soon as there is an answer."""

    @property
    def is_read(self) -> bool:
        """Whether `next` has handed out all there is; it then says so, at once."""

    @property
    def is_whole(self) -> bool:
        """Whether every choice has its finish reason by now."""

    @property
    def is_storable(self) -> bool:
        """Whether the reply cache may keep it: live, ended by ``stop``, with text."""

    async def aclose(self) -> None:
        """Stop; a reply not read to its end is cancelled at its endpoint."""


class LiveAnswer:
    """One endpoint's answer, opened or whole.

    Args:
        call: The call.
        rung: The endpoint's name.
        rung_index: Its place in the ladder.
        version: What answers.
        attempt: The attempt that brought it.
        held: Chunks up to the first content, that one included.
        settle: Enters the attempt's end into ledger and breaker.
    """

    def __init__(
        self,
        call: Call,
        *,
        rung: str,
        rung_index: int,
        version: Version,
        attempt: Attempt,
        held: list[Chunk],
        settle: Settle,
    ) -> None:
        self._call = call
        self._rung = rung
        self._rung_index = rung_index
        self.version = version
        self._attempt = attempt
        self._held = held
        self._settle = settle
        self._attempt_id = f"{call.call_id}/{call.next_attempt}"
        self._is_settled = False
        self._body: dict[str, Any] | None = None

    async def next(self) -> list[Chunk] | None:
        """See `Answer.next`."""
        if self._held:
            held, self._held = self._held, []
            return held
        if self._attempt.is_ended:
            await self._settle_once(None)
            return None
        try:
            return await self._attempt.read()
        except RungFailedError as exc:
            await self._settle_once(cause_of(exc))
            raise StreamInterruptedError(
                text=self.assembly.text,
                attempt_id=self._attempt_id,
                num_tokens=self.assembly.num_output_tokens or 0,
                cause=cause_of(exc),
            ) from exc
        except BaseException as exc:  # the caller left
            await self._settle_once(exc)
            raise

    @property
    def origin(self) -> Origin:
        """See `Answer.origin`."""
        return Origin(
            rung=self._rung,
            version=self.version.digest,
            num_sent=sum(a.was_sent for a in self._call.attempts) + (not self._is_settled),
        )

    @property
    def is_read(self) -> bool:
        """See `Answer.is_read`."""
        return self._attempt.is_ended and not self._held

    @property
    def is_whole(self) -> bool:
        """See `Answer.is_whole`."""
        return self.assembly.judge_end() is None

    async def finish(self) -> None:
        """Read to the end, for a caller who wants the whole; raises RungFailedError."""
        while not self._attempt.is_ended:
            await self._attempt.read()
        await self._settle_once(None)

    async def _settle_once(self, end: Failure | BaseException | None) -> None:
        if not self._is_settled:
            self._is_settled = True
            await self._settle(end)

    async def aclose(self) -> None:
        """See `Answer.aclose`."""
        await self._settle_once(None if self.is_whole else GeneratorExit())

    @property
    def assembly(self) -> Assembly:
        """The reply under construction."""
        return self._attempt.assembly

    @property
    def is_storable(self) -> bool:
        """See `Answer.is_storable`."""
        return self.is_whole and self.assembly.is_plain_stop

    def reply(self) -> Reply:
        """See `Answer.reply`."""
        assembly = self.assembly
        return Reply(
            call_id=self._call.call_id,
            rung=self._rung,
            rung_index=self._rung_index,
            version=self.version.digest,
            model=assembly.model,
            body=assembly.completion(),
            attempts=tuple(self._call.attempts),
            usage=Usage(
                num_prompt_tokens=assembly.num_prompt_tokens,
                num_output_tokens=assembly.num_output_tokens,
                num_cached_tokens=assembly.num_cached_tokens,
            ),
            cost=self._call.cost,
        )


class KeptAnswer:
    """A whole reply that was there before: from the cache, or another caller's flight."""

    is_whole = True
    is_storable = False

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.is_read = False
        self.origin = reply.origin

    async def next(self) -> list[Chunk] | None:
        """Return all of it as chunks, once."""
        if self.is_read:
            return None
        self.is_read = True
        return list(chunks_of(self._reply.body))

    def reply(self) -> Reply:
        """Return it."""
        return self._reply

    async def aclose(self) -> None:
        """Nothing to stop."""
