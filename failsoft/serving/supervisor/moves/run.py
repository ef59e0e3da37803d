"""One move, from the moment it is taken on to its end: state after state (ADR 30).

Before the switch (`BringUp`) whatever goes wrong, and an abort, leave the old engine serving.
The switch is one transaction of the store. After it a failure gives the pin back.
"""

import asyncio
import json
import logging
from typing import Any

from failsoft.errors import CandidateGoneError, PinError, StoreError
from failsoft.fallback.discovery import promote_candidate
from failsoft.pin_records import MoveState, PinMove, WantedRollback
from failsoft.serving.supervisor.keeper import Keeper
from failsoft.serving.supervisor.moves.bring_up import BringUp
from failsoft.serving.supervisor.moves.candidate import Candidate
from failsoft.serving.supervisor.moves.known_pins import note_pins
from failsoft.serving.supervisor.moves.move_log import MoveLog
from failsoft.serving.supervisor.moves.news import MoveNews
from failsoft.serving.supervisor.moves.parts import MoveOverError, MoveParts
from failsoft.serving.supervisor.moves.proof import prove_slot, with_seconds
from failsoft.serving.supervisor.moves.trial import TrialError
from failsoft.serving.supervisor.terminal import Tone

_log = logging.getLogger(__name__)
_LOOK_S = 0.1
_MEND = ": mend that, then ask again"


class MoveRun:
    """Carries out one move; one event loop owns it.

    Args:
        move: Taken on by this supervisor.
        parts: What all moves share.
        num_bugs: How many bugs broke it off before.
    """

    def __init__(self, move: PinMove, parts: MoveParts, *, num_bugs: int = 0) -> None:
        self.num_bugs = num_bugs
        self._parts = parts
        self._rules = parts.rules
        self._slot = move.slot
        self._log = MoveLog(move, desk=parts.desk, retry_s=parts.rules.retry_s)
        self._news = MoveNews(move, parts.around)
        self._proof: dict[str, object] = json.loads(move.proof_json or "{}")
        self._candidate = Candidate(move, parts, self._proof)
        self._is_installed = False
        self._is_ending = False
        self._is_hurried = asyncio.Event()
        self._hurried_by = ""
        self._bring_up = BringUp(
            self._log, candidate=self._candidate, news=self._news, parts=parts, proof=self._proof
        )

    @property
    def move(self) -> PinMove:
        """The move as it was last written."""
        return self._log.move

    def abort(self, who: str) -> None:
        """Take the move back; nothing happens once it has switched."""
        self._bring_up.abort(who)

    def hurry(self, rollback: WantedRollback) -> None:
        """Come to an end, since *rollback* waits for it; for a move that has switched."""
        if not self._is_hurried.is_set():
            self._hurried_by = rollback.ask.who
            self._is_hurried.set()
            self._news.hurry(rollback)

    def stop(self) -> None:
        """Take the move back since `failsoft up` ends."""
        self._is_ending = True
        self._bring_up.stop()

    async def claim(self) -> bool:
        """Take the move on; False when another supervisor did.

        Raises:
            StoreError: The store refused.
        """
        return await self._log.claim(owner=self._parts.owner)

    async def carry_out(self) -> None:
        """Carry the move out to its end, or, once it has switched, as far as time allows."""
        try:
            await self._bring_up.run()
        except MoveOverError as over:
            await self._put_back(over)
            return
        except Exception as exc:  # noqa: BLE001 - a bug must not cost the engines that serve
            _log.exception("a bug ended the move of pin %s", self._slot)
            await self._put_back(MoveOverError(MoveState.FAILED, f"a bug in failsoft: {exc!r}"))
            return
        await self._take_over()

    async def resume(self) -> None:
        """Go on with a move that had switched when its supervisor died."""
        self._news.say(f"{self.move.state.value} when its supervisor died; proving …", Tone.WARNING)
        await self._prove_again()

    async def undo(self) -> None:
        """End a move that had not switched when its supervisor died; nothing of it is left."""
        await self._undo("its supervisor died")

    async def mend(self) -> None:
        """Do the same where a bug broke the move off, and its supervisor lives on.

        Once it has switched, what callers find stays until its successor is ready, be it an
        engine that was still on trial.
        """
        parts, slot = self._parts, self._slot
        await self._log.look()
        if not self.move.state.is_switched:
            await self._candidate.end()
        parts.roster.release(slot)
        await self._take_pins()
        await parts.roster.revive(slot)
        if self.move.ended_at_ms is not None:
            return
        if not self.move.state.is_switched:
            await self._undo("a bug in failsoft broke it off")
            return
        self._news.say(f"a bug broke it off while {self.move.state.value}; proving …", Tone.WARNING)
        await self._prove_again()
        await self._candidate.end()

    async def give_up(self, bug: BaseException) -> None:
        """End the move in the store as it is, since a bug keeps breaking it off."""
        await self._log.look()
        if self.move.ended_at_ms is None:
            is_switched = self.move.state.is_switched
            state = MoveState.FAILED if is_switched else MoveState.UNDONE
            back = "; the pin went back" if is_switched else ""
            why = f"a bug in failsoft broke it off again and again: {bug!r}{back}"
            await self._end(state, f"{self.move.state.value}: {why}")
        await self._candidate.end()
        self._parts.roster.release(self._slot)
        await self._take_pins()
        await self._parts.roster.revive(self._slot)

    async def _prove_again(self) -> None:
        if self.move.rollback is not None:
            self.hurry(self.move.rollback)
        await self._confirm()

    async def _undo(self, why: str) -> None:
        was = self.move.state.value
        await self._end(MoveState.UNDONE, f"{why} while {was}; the pin was not moved, ask again")

    # It does not come through.

    async def _put_back(self, over: MoveOverError) -> None:
        """Leave everything as it was, then end the move."""
        parts = self._parts
        await self._candidate.end()
        reason = over.reason
        if self._bring_up.is_old_stopped and not self._is_ending:
            reason += await self._restore()
        parts.standing.let_go(self._slot)
        parts.roster.release(self._slot)
        if not self._is_ending:
            parts.apply()  # what settings changed meanwhile is taken up now
        if over.state is None:
            self._news.say(reason, Tone.BAD)
            return
        await self._end(over.state, reason)

    async def _restore(self) -> str:
        """Start the old engine again; return what is to be added to the reason."""
        try:
            await self._log.enter(MoveState.RESTORING, patience_s=0)
        except (StoreError, PinError) as exc:
            _log.warning("pin %s: restoring is not written down: %s", self._slot, exc)
        self._news.enter(MoveState.RESTORING)
        # Taken back while it still stopped: memory does not hold it twice.
        await self._parts.roster.empty(self._slot)
        keeper = self._parts.roster.restart(self._slot)
        until_s = asyncio.get_running_loop().time() + self._rules.starting_s
        while keeper.phase not in ("running", "gave_up") and not self._is_ending:
            if asyncio.get_running_loop().time() >= until_s:
                break
            await asyncio.sleep(_LOOK_S)
        if keeper.phase == "running":
            return ""
        return f"; and the old engine is not back yet ({keeper.phase}: {keeper.state.last_exit})"

    async def _end(self, state: MoveState, reason: str | None) -> None:
        """Write the end down, for as long as it takes."""
        proof = with_seconds(self._proof, self.move) if self._proof else None
        try:
            await self._log.end(state, reason=reason, proof=proof)
        except PinError as exc:
            self._news.say(str(exc), Tone.BAD)
            return
        self._news.end(self.move, unproven=self._candidate.is_unproven)

    # It has switched.

    async def _take_over(self) -> None:
        """Have ladders find the new engine, let the old one finish, and confirm."""
        parts, slot = self._parts, self._slot
        self._news.switched()
        parts.standing.let_go(slot)
        parts.standing.pin(slot, self.move.to)
        try:
            # Before the move ends: the next start may find no store.
            note_pins(parts.home, parts.standing.file.store.url, parts.standing.moved)
            parts.keep_settings()
            promote_candidate(parts.home, slot, self._candidate.pid)
        except (OSError, CandidateGoneError) as exc:
            await self._candidate.end()
            await self._go_back(f"switching: {exc}", _MEND)
            return
        leaving = self._candidate.install()
        self._is_installed = True
        self._candidate.forget()
        parts.roster.release(slot)
        parts.tell_children()
        try:
            await self._drain(leaving)
        except PinError as exc:  # somebody ended it in the store, which holds
            self._news.say(str(exc), Tone.BAD)
            return
        await self._confirm()

    async def _drain(self, leaving: Keeper) -> None:
        await self._log.enter(MoveState.DRAINING, patience_s=None)
        self._news.enter(MoveState.DRAINING)
        # One that is not waited for ends as it would have: its own callers are not cut.
        await self._wait_or_hurry(leaving.task, self._rules.draining_s)

    async def _confirm(self) -> None:
        """Prove what sits at the slot now, and end the move by it."""
        proving = asyncio.create_task(prove_slot(self._parts, self._slot, self.move.to.digest))
        try:
            await self._wait_or_hurry(proving, self._rules.starting_s)
            if self._is_hurried.is_set() and self._is_up():
                await asyncio.wait({proving}, timeout=self._rules.hurried_s)
            if not proving.done():
                raise TrialError(self._unready_words())
            self._proof |= proving.result()
        except TrialError as exc:
            await self._go_back(
                f"{self.move.state.value}: {exc}", "" if self._is_hurried.is_set() else _MEND
            )
            return
        finally:
            proving.cancel()
        await self._end(MoveState.CONFIRMED, None)

    async def _wait_or_hurry(self, task: "asyncio.Task[Any]", limit_s: float) -> None:
        """Wait for *task*, which goes on whatever happens, until somebody is in a hurry."""
        hurry = asyncio.create_task(self._is_hurried.wait())
        try:
            await asyncio.wait({task, hurry}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurry.cancel()

    def _is_up(self) -> bool:
        """Return whether the engine that the pin points at serves, as far as is known."""
        seated = self._parts.roster.seated(self._slot)
        return seated is not None and seated.keeper.phase == "running"

    def _unready_words(self) -> str:
        if not self._is_hurried.is_set():
            return f"it was not ready within {self._rules.starting_s:g} s"
        if self._is_up():
            within = f"within {self._rules.hurried_s:g} s"
            return f"it did not prove itself {within} after {self._hurried_by} rolled it back"
        return f"it was not ready when {self._hurried_by} rolled it back"

    async def _go_back(self, why: str, then: str) -> None:
        """Give the pin back and have its engine started again."""
        parts = self._parts
        old = self._bring_up.old or self.move.left
        if old is not None:
            parts.standing.hold(self._slot, old)
        if self._bring_up.is_old_stopped and not self._is_installed:
            parts.roster.restart(self._slot)
        parts.roster.release(self._slot)
        parts.apply()
        await self._end(MoveState.FAILED, f"{why}; the pin went back{then}")
        await self._take_pins()

    async def _take_pins(self) -> None:
        """Go by the store again, now that it knows of the end."""
        while True:
            try:
                pins = await self._parts.desk.do(lambda store: store.pins.pins())
                break
            except StoreError:
                await asyncio.sleep(self._rules.retry_s)
        self._parts.standing.take_pins(pins.values())
        self._parts.standing.let_go(self._slot)
        self._parts.apply()
