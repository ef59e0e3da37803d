"""A move up to its switch: state after state, each written down before its work begins.

Whatever goes wrong in here, and an abort, leave the pin where it is.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from failsoft.errors import FailsoftError, PinError, StoreError
from failsoft.pin_records import MoveState, PinnedVersion
from failsoft.serving.supervisor.moves.candidate import Candidate
from failsoft.serving.supervisor.moves.move_log import MoveLog
from failsoft.serving.supervisor.moves.news import MoveNews
from failsoft.serving.supervisor.moves.parts import MoveOverError, MoveParts
from failsoft.serving.supervisor.moves.proof import with_seconds
from failsoft.serving.supervisor.moves.trial import TrialError

_T = TypeVar("_T")
_LOOK_S = 0.1
_DEATH_S = 1.0
"""How long an engine's end may take to be known after it broke off an answer."""


class BringUp:
    """Brings one move to its switch; one event loop owns it.

    Args:
        log: Writes the move down.
        candidate: The engine that it brings.
        news: Tells of it.
        parts: What all moves share.
        proof: What was learnt so far.
    """

    def __init__(
        self,
        log: MoveLog,
        *,
        candidate: Candidate,
        news: MoveNews,
        parts: MoveParts,
        proof: dict[str, object],
    ) -> None:
        self._log = log
        self._candidate = candidate
        self._news = news
        self._parts = parts
        self._rules = parts.rules
        self._proof = proof
        self._slot = log.move.slot
        self._wish: asyncio.Future[MoveOverError] = asyncio.get_running_loop().create_future()
        self.old: PinnedVersion | None = None
        """What the slot ran when the move began."""
        self.is_old_stopped = False

    def abort(self, who: str) -> None:
        """Take the move back; nothing happens once it has switched."""
        self._interrupt(MoveState.ABORTED, f"{who} took it back")

    def stop(self) -> None:
        """Take the move back since `failsoft up` ends."""
        self._interrupt(
            MoveState.UNDONE, "`failsoft up` was stopped before it had switched; ask again"
        )

    def _interrupt(self, state: MoveState, reason: str) -> None:
        if not self._wish.done():
            self._wish.set_result(MoveOverError(state, reason))

    async def run(self) -> None:
        """Bring the target up, beside the old engine or in its place, and switch to it.

        Raises:
            MoveOverError: It did not come through; the pin is where it was.
        """
        candidate, rules = self._candidate, self._rules
        self._news.begin()
        target = await self._during(MoveState.CHECKING, self._check, rules.checking_s)
        if self._log.move.swap == "stop-first":
            await self._during(MoveState.STOPPING, self._stop_old, rules.stopping_s)
        await self._during(MoveState.STARTING, candidate.start, rules.starting_s, to=target)
        await self._during(MoveState.WARMING, candidate.warm_up, rules.warming_s)
        await self._during(MoveState.PROVING, candidate.prove, rules.proving_s)
        await self._during(MoveState.SMOKING, candidate.smoke, rules.smoking_s)
        await self._switch()

    async def _check(self) -> PinnedVersion:
        is_held = await self._hold()
        old = self._parts.standing.version(self._slot)
        if old is None or not is_held:
            raise TrialError(
                "no engine sits at the slot, or new settings replace it already; look with "
                "`failsoft status`, then ask again"
            )
        self.old = old
        self._parts.standing.hold(self._slot, old)
        return await self._candidate.check()

    async def _hold(self) -> bool:
        """Hold the slot; an engine that is just being replaced there is waited for.

        As after a pin went back by itself, and the rollback that follows goes somewhere else.
        """
        roster, loop = self._parts.roster, asyncio.get_running_loop()
        until_s = loop.time() + self._rules.settling_s
        while not roster.hold(self._slot):
            if roster.seated(self._slot) is None or loop.time() >= until_s:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    async def _stop_old(self) -> None:
        self.is_old_stopped = True
        await self._parts.roster.empty(self._slot)

    async def _switch(self) -> None:
        state = self._log.move.state
        try:
            self._candidate.check_needed()
        except (TrialError, PinError) as exc:
            raise _failed(state, str(exc)) from exc
        if self._wish.done():
            raise self._wish.result()
        try:
            has_switched = await self._log.switch(
                proof=with_seconds(self._proof, self._log.move), patience_s=self._rules.store_s
            )
        except (StoreError, PinError) as exc:
            raise _refused(exc) from exc
        if not has_switched:
            raise MoveOverError(MoveState.ABORTED, f"{self._log.move.abort_by} took it back")

    async def _during(
        self,
        state: MoveState,
        work: Callable[[], Awaitable[_T]],
        limit_s: float,
        *,
        to: PinnedVersion | None = None,
    ) -> _T:
        """Enter *state*, then do its *work*; return what that returns.

        Raises:
            MoveOverError: The work failed or took too long, the engine on trial ended, or
                somebody took the move back.
        """
        if self._wish.done():
            raise self._wish.result()
        try:
            await self._log.enter(
                state, to=to, proof=self._proof or None, patience_s=self._rules.store_s
            )
        except (StoreError, PinError) as exc:
            raise _refused(exc) from exc
        self._news.enter(state)
        if self._log.move.abort_by is not None:
            self.abort(self._log.move.abort_by)
        task = asyncio.ensure_future(work())
        try:
            until: list[asyncio.Future[Any]] = [task, self._wish, self._candidate.ended]
            await asyncio.wait(until, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            return await self._result(state, task, limit_s)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    async def _result(self, state: MoveState, task: "asyncio.Future[_T]", limit_s: float) -> _T:
        if self._wish.done():
            raise self._wish.result()
        if not task.done():
            ended = self._candidate.end_words
            raise _failed(state, ended or f"it took longer than {limit_s:g} s")
        try:
            return task.result()
        except StoreError as exc:
            raise _refused(exc) from exc
        except TrialError as exc:
            if self._candidate.is_started:  # that it ended is the better reason
                await asyncio.wait([self._candidate.ended], timeout=_DEATH_S)
            raise _failed(state, self._candidate.end_words or str(exc)) from exc


def _failed(state: MoveState, why: str) -> MoveOverError:
    """Return the end of a move that something is wrong with; a command in *why* is a next step."""
    hint = "" if "`" in why else "; see what `failsoft up` says of it, mend it, and ask again"
    return MoveOverError(MoveState.FAILED, f"{state.value}: {why}{hint}")


def _refused(exc: FailsoftError) -> MoveOverError:
    """Return the end of a move that cannot be written down."""
    if isinstance(exc, PinError):
        return MoveOverError(None, str(exc))
    return MoveOverError(MoveState.FAILED, f"{exc}; mend the store, then ask again")
