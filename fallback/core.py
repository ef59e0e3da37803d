"""One client's working parts: ladders, stores, and what belongs to each event loop.

Everything runs on the caller's event loop; a client used on two loops has two
transports and one set of breakers. Knows nothing of threads. Units: seconds.
"""

import asyncio
import os
import weakref
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from failsoft.call_records import IdempotencyStore, Recorder, ReplyStore
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
from failsoft.fallback.reply import Reply
from failsoft.fallback.single_flight import Flight, Flights
from failsoft.fallback.surroundings import Surroundings
from failsoft.fallback.transport import Transport

MIN_WRITE_S = 0.05
"""What the write of an idempotent reply may take at the deadline."""
CLOSE_S = 1.0
"""What a closing client gives to the work beside its calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backends:
    """Where a client's records and kept replies go."""

    recorder: Recorder
    replies: ReplyStore | None
    """None keeps no reply anywhere: no ladder then has a cached rung."""
    keys: IdempotencyStore
    close: Callable[[], None] = lambda: None
    """Flushes and closes them; called once."""


@dataclass(slots=True)
class LoopParts:
    """What belongs to one event loop."""

    transport: Transport
    flights: Flights = field(default_factory=Flights)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)


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
        self.keeps_text = settings.store.keep_text == "all"
        self._make_transport = make_transport
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopParts] = (
            weakref.WeakKeyDictionary()
        )
        self._is_closed = False
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
            transport=lambda: self._parts().transport,
            on_answer=lambda endpoint, target: self._learner.on_answer(
                endpoint, target, transport=self._parts().transport, spawn=self.spawn
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
        with CallLog(call, keeps_text=self.keeps_text) as log:
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
                await held.finish(log.reply, timeout_s=max(MIN_WRITE_S, call.deadline.remaining_s))
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
            raise ClientClosedError("the client was closed; make a new one")
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

    async def claim(self, call: Call) -> Claim | Reply | None:
        """Claim the call's idempotency key; see `failsoft.fallback.idempotency.claim`."""
        return await claim(self.backends.keys, call)

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
            cached.key(request, version),
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
            self.spawn(held.release())

    def _begin_anew(self) -> None:
        """Forget, in a forked child, what the parent had under way: it never ends here."""
        self._pid = os.getpid()
        self._inherited = self._loops  # not to be closed: its sockets are the parent's too
        self._loops = weakref.WeakKeyDictionary()
        self.ladders = self._builder.build()

    def _parts(self) -> LoopParts:
        loop = asyncio.get_running_loop()
        parts = self._loops.get(loop)
        if parts is None:
            if self._is_closed:
                raise ClientClosedError("the client was closed; make a new one")
            parts = self._loops[loop] = LoopParts(transport=self._make_transport())
        return parts

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run *work* beside the calls; closing the client waits for it a little."""
        tasks = self._parts().tasks
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def aclose(self) -> None:
        """Close this loop's connections and the backends; new calls are refused."""
        self._is_closed = True
        parts = self._loops.pop(asyncio.get_running_loop(), None)
        if parts is not None:
            await _finish(parts.tasks)
            await parts.transport.aclose()
        await asyncio.to_thread(self.backends.close)


async def _finish(tasks: set[asyncio.Task[None]]) -> None:
    """Let work beside the calls end, but not for long."""
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=CLOSE_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
