"""One client's working parts: ladders, stores, and what belongs to each event loop.

Everything runs on the caller's event loop; a client used on two loops has two
transports and one set of breakers. Knows nothing of threads. Units: seconds.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from failsoft.call_records import Recorder
from failsoft.config.settings import Settings
from failsoft.errors import ClientClosedError, ConfigError, UnknownLadderError
from failsoft.fallback.answer import Answer, LiveAnswer
from failsoft.fallback.build import Builder
from failsoft.fallback.call import Call, CallRequest
from failsoft.fallback.call_log import CallLog
from failsoft.fallback.call_stream import CallStream
from failsoft.fallback.context_learner import ContextLearner
from failsoft.fallback.discovery import EngineFinder
from failsoft.fallback.idempotency import Claim, claim
from failsoft.fallback.ladder import Ladder
from failsoft.fallback.loop_parts import LoopParts
from failsoft.fallback.pins.pin_book import PinBook, PinReader
from failsoft.fallback.reply import Reply
from failsoft.fallback.single_flight import Flight
from failsoft.fallback.store_threads import StoreThreads
from failsoft.fallback.surroundings import Surroundings
from failsoft.fallback.transport import Transport
from failsoft.idempotency_records import IdempotencyStore
from failsoft.reply_records import ReplyStore

MIN_WRITE_S, MAX_WRITE_S = 0.05, 1.0
"""How long a caller waits for the write of an idempotent reply: at the deadline, and at most."""
CLOSE_S = 1.0
"""What a closing client gives to the work beside its calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backends:
    """Where a client's records and kept replies go."""

    recorder: Recorder
    replies: ReplyStore | None
    """None keeps no reply anywhere: no ladder then has a cached rung."""
    keys: IdempotencyStore
    pins: PinReader | None = None
    """None where nothing moves a pin: the settings' own hold."""
    close: Callable[[], None] = lambda: None
    """Flushes and closes them; called once."""


class Core:
    """The async client below its faces.

    Args:
        settings: Endpoints, ladders, pins.
        backends: Records and kept replies.
        home: failsoft's folder, where local engines are published.
        environ: Where API keys are.
        surroundings: Clocks, chance and sleep.
        make_transport: Makes the transport of one event loop.

    Raises:
        ConfigError: An API key's variable is not set.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        backends: Backends,
        home: Path,
        environ: Mapping[str, str],
        surroundings: Surroundings,
        make_transport: Callable[[], Transport],
    ) -> None:
        self._pid = os.getpid()
        self.backends = backends
        self.surroundings = surroundings
        self._keeps_text = settings.store.keep_text == "all"
        self._make_transport = make_transport
        self._loops: dict[asyncio.AbstractEventLoop, LoopParts] = {}
        self._is_closed = False
        self._threads = StoreThreads()
        self.book = PinBook(backends.pins, threads=self._threads, clock=surroundings.clock)
        self.book.read()
        self._store_config = settings.store
        self._learner = ContextLearner(clock=surroundings.clock)
        self._finder = EngineFinder(home)
        self._environ = environ
        self._builder = self._new_builder(settings)
        self.ladders: dict[str, Ladder] = self._builder.build()

    def _new_builder(self, settings: Settings) -> Builder:
        return Builder(
            settings,
            finder=self._finder,
            recorder=self.backends.recorder,
            replies=self.backends.replies,
            threads=self._threads,
            book=self.book,
            transport=lambda: self._parts().transport,
            on_answer=lambda endpoint, target: self._learner.on_answer(
                endpoint,
                target,
                transport=self._parts().transport,
                spawn=self._parts().spawn,
            ),
            environ=self._environ,
            surroundings=self.surroundings,
        )

    def reload(self, settings: Settings) -> None:
        """Answer new calls by *settings*; calls under way end by those they began with.

        An endpoint that stays what it was keeps its breaker and what was learnt of it.

        Raises:
            ConfigError: The store is another one, or an API key's variable is not set; the old
                settings stay.
        """
        if settings.store != self._store_config:
            raise ConfigError(
                key="store",
                value=settings.store.url,
                allowed="unchanged while a client is open; make a new client",
            )
        builder = self._new_builder(settings)
        self.ladders = builder.build(after=self._builder)
        self._builder = builder

    async def ask(self, request: CallRequest) -> Reply:
        """Return a whole reply.

        Raises:
            FallbackError: See `failsoft.errors`; every kind says what to do.
        """
        call, ladder = self.begin(request)
        with self.log(call) as log:
            held = await self.claim(call)
            if isinstance(held, Reply):
                log.reply = held
                return held
            try:
                answer = await self.answer(call, ladder)
                log.reply = answer.reply()
                self.keep(call, ladder, answer, log.reply)
            except BaseException:
                self.release(held)
                raise
            if held is not None:
                write_s = min(MAX_WRITE_S, max(MIN_WRITE_S, call.deadline.remaining_s))
                await held.finish(log.reply, timeout_s=write_s)
            return log.reply

    def stream(self, request: CallRequest) -> CallStream:
        """Return a call whose reply streams; nothing is asked before its first `next`."""
        return CallStream(self, request)

    def begin(self, request: CallRequest) -> tuple[Call, Ladder]:
        """Return a new call and its ladder.

        Raises:
            ClientClosedError: The client was closed.
            UnknownLadderError: There is no such ladder.
        """
        if self._is_closed:
            raise ClientClosedError
        if self._pid != os.getpid():
            self._begin_anew()
        ladder = self.ladders.get(request.ladder)
        if ladder is None:
            raise UnknownLadderError(request.ladder, known=tuple(self.ladders))
        call = Call(
            request,
            ladder_deadline_s=ladder.config.deadline_s,
            recorder=self.backends.recorder,
            surroundings=self.surroundings,
        )
        return call, ladder

    def log(self, call: Call) -> CallLog:
        """Return what writes the call's row; a client that closes waits for it."""
        parts = self._parts()
        parts.begin_call()
        return CallLog(call, keeps_text=self._keeps_text, on_end=parts.end_call)

    async def claim(self, call: Call) -> Claim | Reply | None:
        """Claim the call's idempotency key; see `failsoft.fallback.idempotency.claim`."""
        return await claim(self.backends.keys, call, self._threads)

    async def answer(self, call: Call, ladder: Ladder) -> Answer:
        """Return an answer, shared with others who ask the same right now if that is allowed."""
        request, cached = call.request, ladder.cached
        if cached is None or not cached.may_share(request):
            return await ladder.ask(call)
        version = ladder.models[0].endpoint.version() if ladder.models else None
        if version is None:
            return await ladder.ask(call)
        key = (
            ladder.config.name,
            # A kept reply may stand for one of other sampling; a live one must be asked for.
            cached.key(request, version, is_exact=True),
            request.is_stream,
            request.fallback,
        )
        return await self._parts().flights.board(
            key, call, lambda flight: self._climb(flight, call, ladder)
        )

    async def _climb(self, flight: Flight, call: Call, ladder: Ladder) -> Reply:
        """Climb *ladder* for everybody on *flight*."""
        answer = await ladder.ask(call)
        flight.origin = answer.origin
        try:
            if call.request.is_stream:
                while (chunks := await answer.next()) is not None:
                    if chunks:
                        flight.publish(chunks)
        finally:
            await answer.aclose()
        reply = answer.reply()
        self.keep(call, ladder, answer, reply)
        return reply

    def keep(self, call: Call, ladder: Ladder, answer: Answer, reply: Reply) -> None:
        """Hand *reply* to the ladder's cache, if it has one."""
        if ladder.cached is not None and isinstance(answer, LiveAnswer):
            ladder.cached.keep(call, answer, reply)

    def release(self, held: Claim | Reply | None) -> None:
        """Free an idempotency key, beside the call: a caller who left waits for nothing."""
        if isinstance(held, Claim):
            held.release()

    def _begin_anew(self) -> None:
        """Forget, in a forked child, what the parent had under way: it never ends here."""
        self._pid = os.getpid()
        self._inherited = self._loops  # not to be closed: its sockets are the parent's too
        self._loops = {}
        self.book.begin_anew()
        self.ladders = self._builder.build()

    def _parts(self) -> LoopParts:
        loop = asyncio.get_running_loop()
        parts = self._loops.get(loop)
        if parts is None:
            if self._is_closed:
                raise ClientClosedError
            for ended in [known for known in self._loops if known.is_closed()]:
                del self._loops[ended]  # it told nobody that it would end
            parts = self._loops[loop] = LoopParts(
                self._make_transport(), on_end=lambda: self._loops.pop(loop, None)
            )
        return parts

    async def aclose(self) -> None:
        """Close this loop's connections and the backends; new calls are refused.

        Calls under way break off, and their rows are written.
        """
        self._is_closed = True
        parts = self._loops.get(asyncio.get_running_loop())
        if parts is not None:
            await parts.aclose(timeout_s=CLOSE_S)
        self.book.close()
        await self._threads.finish(timeout_s=CLOSE_S)
        await asyncio.to_thread(self.backends.close)
        self._threads.close()
