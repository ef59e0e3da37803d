"""Single flight: parallel callers of the very same request share one climb of the ladder.

The climb runs in a task of its own, so no caller's leaving stops it for the others;
when the last one leaves it is cancelled. Every caller keeps its own deadline. A
flight has its first caller's: when it ends by that, those with time left start
another, and since a stream that has begun cannot, nobody joins one that would end
long before his own deadline. Belongs to one event loop. Units: monotonic seconds.
"""

import asyncio
from collections.abc import Awaitable, Callable
from copy import deepcopy
from dataclasses import replace

from failsoft.call_records import AttemptOutcome as Outcome
from failsoft.errors import ClientClosedError, LadderExhaustedError, StreamInterruptedError
from failsoft.fallback.call import Call
from failsoft.fallback.chunk import Chunk
from failsoft.fallback.failure import Action, Failure
from failsoft.fallback.reply import Delta, Origin, Reply

DEADLINE_STATUS = 504
MIN_SHARED_RATIO = 0.5
"""Of the time a caller has, what a stream in flight must have left for him to join it."""
FlightKey = tuple[object, ...]


class Flight:
    """One climb that several callers share: its chunks so far, and how it ended."""

    def __init__(self, leader: Call) -> None:
        self._leader = leader
        self.chunks: list[list[Chunk]] = []
        self.origin: Origin | None = None
        """Where the answer comes from; there before the first chunks."""
        self.reply: Reply | None = None
        self.error: Exception | None = None
        self.num_members = 0
        self.is_abandoned = False
        """Whether its last caller left before the end: nobody may join it any more."""
        self.task: asyncio.Task[None] | None = None
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def leader_id(self) -> str:
        """The call that climbs for everybody, and is charged."""
        return self._leader.call_id

    def may_take(self, call: Call) -> bool:
        """Return whether *call* may join, with most of its own deadline ahead of it."""
        if self.is_abandoned:
            return False
        left_s = self._leader.deadline.remaining_s
        return not call.request.is_stream or (
            left_s >= MIN_SHARED_RATIO * call.deadline.remaining_s
        )

    def _patience_s(self, call: Call) -> float | None:
        """Return how long *call* waits for news at most; None as long as it takes.

        The first caller waits for the climb's own end, which comes at his deadline, and brings
        every rung's cause with it, or the stale reply that is read last.
        """
        if call.call_id == self.leader_id:
            return None
        return max(0.0, call.deadline.remaining_s)

    @property
    def is_over(self) -> bool:
        """Whether it has ended, well or not."""
        return self.reply is not None or self.error is not None

    def publish(self, chunks: list[Chunk]) -> None:
        """Hand *chunks* to every caller."""
        self.chunks.append(chunks)
        self._wake()

    def end(self, *, reply: Reply | None = None, error: Exception | None = None) -> None:
        """Tell every caller how it ended."""
        self.reply, self.error = reply, error
        self._wake()

    async def changed(self, call: Call) -> None:
        """Wait for the next news.

        Raises:
            TimeoutError: There was none within *call*'s patience.
        """
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        async with asyncio.timeout(self._patience_s(call)):
            await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def join(self) -> None:
        """Count one caller in."""
        self.num_members += 1

    def leave(self) -> None:
        """Count one caller out; without any the climb is cancelled."""
        self.num_members -= 1
        if self.num_members == 0 and self.task is not None and not self.is_over:
            self.is_abandoned = True
            self.task.cancel()


class SharedAnswer:
    """One caller's view of a flight; see `failsoft.fallback.answer.Answer`."""

    is_storable = False  # the flight keeps it, once

    def __init__(self, flight: Flight, call: Call) -> None:
        self._flight = flight
        self._call = call
        self._has_left = False
        self._position = 0

    @property
    def origin(self) -> Origin:
        """See `Answer.origin`; only the first caller's call sent anything."""
        origin = self._flight.origin
        assert origin is not None
        return origin if self._is_leader else replace(origin, num_sent=0)

    @property
    def _is_leader(self) -> bool:
        return self._call.call_id == self._flight.leader_id

    @property
    def is_read(self) -> bool:
        """See `Answer.is_read`."""
        flight = self._flight
        return flight.reply is not None and self._position == len(flight.chunks)

    @property
    def is_whole(self) -> bool:
        """See `Answer.is_whole`."""
        return self._flight.reply is not None

    async def next(self) -> list[Chunk] | None:
        """See `Answer.next`; a late caller gets every chunk from the first on."""
        flight = self._flight
        while self._position == len(flight.chunks):
            if flight.error is not None:
                raise flight.error
            if flight.reply is not None:
                return None
            try:
                await flight.changed(self._call)
            except TimeoutError as exc:
                raise self._interrupted() from exc
        self._position += 1
        return flight.chunks[self._position - 1]

    def _interrupted(self) -> StreamInterruptedError:
        """Return the error of a caller whose own deadline ends before the flight does."""
        delivered = self._flight.chunks[: self._position]
        texts = [Delta.of(chunk) for chunks in delivered for chunk in chunks]
        return StreamInterruptedError(
            text="".join(texts),
            attempt_id=f"{self._flight.leader_id}/shared",
            num_tokens=0,  # the flight's first caller is charged
            cause=Failure(
                outcome=Outcome.DEADLINE, action=Action.GIVE_UP, detail="of one of several callers"
            ),
        )

    def reply(self) -> Reply:
        """Return the whole reply, a copy of each caller's own; only the first is charged for it."""
        shared = self._flight.reply
        assert shared is not None
        reply = replace(shared, body=deepcopy(shared.body))
        if self._is_leader:
            return reply
        return replace(reply, call_id=self._call.call_id, attempts=(), cost=0.0)

    async def aclose(self) -> None:
        """Leave the flight."""
        if not self._has_left:
            self._has_left = True
            self._flight.leave()


class Flights:
    """The flights under way on one event loop."""

    def __init__(self) -> None:
        self._flights: dict[FlightKey, Flight] = {}

    async def board(
        self, key: FlightKey, call: Call, climb: Callable[[Flight], Awaitable[Reply]]
    ) -> SharedAnswer:
        """Return the shared answer: open for a stream, whole for any other call.

        Args:
            key: Equal for calls that may share.
            call: Whose deadline counts for the wait.
            climb: Climbs the ladder for *call* and publishes its chunks.

        Raises:
            FallbackError: How the flight failed; or LadderExhaustedError at the call's deadline.
        """
        while True:
            flight = self._flights.get(key)
            if flight is None or not flight.may_take(call):
                flight = self._start(key, call, climb)
            answer = SharedAnswer(flight, call)
            flight.join()
            try:
                while not (flight.is_over or (flight.chunks and call.request.is_stream)):
                    await flight.changed(call)
            except TimeoutError as exc:
                await answer.aclose()
                raise _late(call) from exc
            except BaseException:
                await answer.aclose()
                raise
            if flight.error is None or flight.chunks:
                return answer
            await answer.aclose()
            if not _may_fly_again(flight, call):
                raise flight.error

    def _start(
        self, key: FlightKey, call: Call, climb: Callable[[Flight], Awaitable[Reply]]
    ) -> Flight:
        flight = self._flights[key] = Flight(call)
        flight.task = asyncio.create_task(self._fly(key, flight, climb))
        return flight

    async def _fly(
        self, key: FlightKey, flight: Flight, climb: Callable[[Flight], Awaitable[Reply]]
    ) -> None:
        try:
            flight.end(reply=await climb(flight))
        except Exception as exc:  # noqa: BLE001 - it is raised again in every caller
            flight.end(error=exc)
        except asyncio.CancelledError:
            flight.end(error=ClientClosedError())
            raise
        finally:
            # Before anybody waits again: a call that comes now must start a new flight.
            if self._flights.get(key) is flight:
                del self._flights[key]


def _may_fly_again(flight: Flight, call: Call) -> bool:
    ended_by_deadline = (
        isinstance(flight.error, LadderExhaustedError) and flight.error.status == DEADLINE_STATUS
    )
    return ended_by_deadline and call.call_id != flight.leader_id and call.deadline.remaining_s > 0


def _late(call: Call) -> LadderExhaustedError:
    return LadderExhaustedError(
        ladder=call.request.ladder,
        attempts=tuple(call.attempts),
        causes=("a shared call was not answered in time",),
        status=DEADLINE_STATUS,
        retry_after_s=None,
    )
