"""Takes asked moves on, and goes on with or undoes what a supervisor left that was killed.

Pins are the store's to say; here they are read at the start, noted again with each new
settings file, and moved.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from failsoft.errors import StoreError
from failsoft.fallback.discovery import RunningEngine
from failsoft.fallback.pins.history import moves_behind, pin_differences
from failsoft.pin_records import MoveState, Pin, PinMove
from failsoft.serving.supervisor.moves.known_pins import last_known_pins, note_pins
from failsoft.serving.supervisor.moves.owner import is_same_owner
from failsoft.serving.supervisor.moves.parts import MoveParts, forget_candidates
from failsoft.serving.supervisor.moves.run import MoveRun
from failsoft.serving.supervisor.terminal import Tone

if TYPE_CHECKING:
    from failsoft.store.store import Store

_log = logging.getLogger(__name__)
_MAX_BUGS = 3
"""The move that so many bugs broke off is ended in the store, and not gone on with."""


class _Known(NamedTuple):
    """What the store says at one moment."""

    pins: dict[str, Pin]
    behind: dict[str, PinMove]
    open_moves: list[PinMove]


class Mover:
    """Carries out the moves of one `failsoft up`; one event loop owns it.

    Args:
        parts: What all moves share.
        is_local: Whether the store is a file here, so that its moves are this machine's.
    """

    def __init__(self, parts: MoveParts, *, is_local: bool) -> None:
        self._parts = parts
        self._is_local = is_local
        self._runs: dict[str, tuple[MoveRun, asyncio.Task[None]]] = {}
        self._left: list[PinMove] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_begun = False
        self._is_over = False

    # The start, and new settings.

    async def begin(self) -> None:
        """Learn what the slots are to run; without the store, by what was known last."""
        forget_candidates(self._parts.home)
        try:
            async with asyncio.timeout(self._parts.rules.open_s):
                self._take(await self._read())
        except (StoreError, TimeoutError) as exc:
            self._go_by_last_known(str(exc) or "the store does not answer")
            self._spawn(self._learn())

    def go_on(self) -> None:
        """Deal with what a supervisor before left, and take moves on from now on.

        Call once the engines were told to start. While the store has not been read yet nothing
        happens: `_learn` calls again, so that what others left is known before a move is taken on.
        """
        if not self._has_begun:
            return
        left, self._left = self._left, []
        for move in left:
            if move.state is MoveState.ASKED:
                continue  # nothing was done for it yet: it is found like a new one
            if move.owner is not None and not is_same_owner(
                move.owner, self._parts.owner, is_local=self._is_local
            ):
                self._say(
                    f"pin {move.slot}: its move to {move.to.name} belongs to {move.owner}; start "
                    f"`failsoft up` there, which ends it; if that is gone for good, `failsoft pin "
                    f"abort {move.slot} --orphaned`",
                    Tone.BAD,
                )
                continue
            run = MoveRun(move, self._parts)
            self._start(run, run.resume() if move.state.is_switched else run.undo())
        self._parts.desk.watch()

    def note_settings(self) -> None:
        """Note what a new settings file pins."""
        self._spawn(self._learn())

    async def _learn(self) -> None:
        """Read the store, for as long as it takes, and go by it."""
        while True:
            try:
                known = await self._read()
                break
            except StoreError:
                await asyncio.sleep(self._parts.rules.retry_s)
        is_first = not self._has_begun
        self._take(known)
        self._parts.apply()
        if is_first:
            self.go_on()

    async def _read(self) -> _Known:
        versions = self._parts.standing.file_versions()

        def work(store: "Store") -> _Known:
            for slot, version in versions.items():
                store.pins.note_file_pin(slot, version)
            pins = store.pins.pins()
            behind = moves_behind(pins, store.pins.history())
            return _Known(pins, behind, store.pins.open_moves())

        return await self._parts.desk.do(work)

    def _take(self, known: _Known) -> None:
        parts = self._parts
        parts.standing.take_pins(known.pins.values())
        if not self._has_begun:  # later ones are this supervisor's own
            self._has_begun = True
            self._left = known.open_moves
        self._note_known()
        for line in pin_differences(parts.standing.file, known.pins, known.behind):
            self._say(line, Tone.WARNING)

    def _go_by_last_known(self, why: str) -> None:
        standing = self._parts.standing
        moved = last_known_pins(self._parts.home, standing.file.store.url)
        if moved is None:
            self._say(
                f"pins: {why}; starting by the settings file's pins, and no move is known to have "
                "changed them",
                Tone.BAD,
            )
            return
        standing.take_moved(moved)
        shown = ", ".join(f"{slot} = {version.name}" for slot, version in moved.items()) or "none"
        self._say(f"pins: {why}; starting by the moved pins last known: {shown}", Tone.BAD)

    def _note_known(self) -> None:
        standing = self._parts.standing
        try:
            note_pins(self._parts.home, standing.file.store.url, standing.moved)
        except OSError as exc:
            self._say(f"the moved pins cannot be noted beside the store: {exc}", Tone.WARNING)

    # Moves.

    def on_moves(self, moves: Iterable[PinMove]) -> None:
        """Take in every move that is under way, as the store has them now."""
        if self._is_over:
            return
        for move in moves:
            if move.slot in self._runs:
                self._pass_on(move)
            elif move.state is MoveState.ASKED and self._is_ours(move):
                run = MoveRun(move, self._parts)
                self._start(run, self._claim_and_carry_out(run))

    def _pass_on(self, move: PinMove) -> None:
        """Tell the run of *move* what others want of it."""
        run, _ = self._runs[move.slot]
        if run.move.move_id != move.move_id:
            return
        if move.abort_by is not None:
            run.abort(move.abort_by)
        if move.rollback is not None:
            run.hurry(move.rollback)

    def _is_ours(self, move: PinMove) -> bool:
        """Whether to take *move* on: a store that machines share has moves of others' slots too."""
        if move.owner is not None:
            return move.owner == self._parts.owner
        # Anybody may end one that is to be taken back: nothing was done for it yet.
        return self._parts.roster.seated(move.slot) is not None or move.abort_by is not None

    async def _claim_and_carry_out(self, run: MoveRun) -> None:
        try:
            if not await run.claim():
                return
        except StoreError:
            return  # the next look finds it again
        await run.carry_out()

    def _start(self, run: MoveRun, work: Coroutine[Any, Any, None]) -> None:
        slot = run.move.slot
        task = asyncio.create_task(work, name=f"move of {slot}")
        self._runs[slot] = (run, task)
        task.add_done_callback(lambda task: self._note_end(slot, task))

    def _note_end(self, slot: str, task: "asyncio.Task[None]") -> None:
        run, _ = self._runs.pop(slot)
        bug = None if task.cancelled() else task.exception()
        if bug is not None:  # it must not cost the engines that serve
            _log.error("a bug broke off the move of pin %s", slot, exc_info=bug)
        if self._is_over:
            return
        if bug is not None and run.num_bugs < _MAX_BUGS:
            again = MoveRun(run.move, self._parts, num_bugs=run.num_bugs + 1)
            self._start(again, self._mend(again, bug))
            return
        if bug is not None:
            self._say(
                f"pin {slot}: bugs of failsoft keep its move from its end; start `failsoft up` "
                "anew, which ends it",
                Tone.BAD,
            )
        self.note_settings()

    async def _mend(self, run: MoveRun, bug: BaseException) -> None:
        """Go on with what *bug* broke off as a supervisor does that was killed in the middle."""
        await asyncio.sleep(self._parts.rules.retry_s)
        if run.num_bugs < _MAX_BUGS:
            await run.mend()
        else:
            await run.give_up(bug)

    def note_engine(self, slot: str) -> None:
        """Note the digest that the ready engine of *slot* reports, where its pin lacks one."""
        engine = self._parts.finder.find(slot)
        pinned = self._parts.standing.version(slot)
        if not isinstance(engine, RunningEngine) or engine.version_digest is None:
            return
        if pinned is None or pinned.digest is not None or slot in self._runs:
            return
        if not self._parts.roster.is_settled(slot):
            return  # the one that leaves was started again: the pin is another's by now
        name, digest = pinned.name, engine.version_digest
        self._spawn(self._note_digest(slot, name, digest))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._note_done)

    def _note_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            _log.error("a bug in what notes pins", exc_info=bug)

    async def _note_digest(self, slot: str, name: str, digest: str) -> None:
        try:
            await self._parts.desk.do(lambda store: store.pins.note_digest(slot, name, digest))
        except StoreError as exc:
            _log.warning("pin %s: its digest is not noted: %s", slot, exc)

    async def stop(self) -> None:
        """Take back what has not switched; the rest is the next supervisor's to end."""
        self._is_over = True
        for run, _ in self._runs.values():
            run.stop()
        tasks = [*(task for _, task in self._runs.values()), *self._tasks]
        if tasks:
            await asyncio.wait(tasks, timeout=self._parts.rules.last_words_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _say(self, words: str, tone: Tone) -> None:
        self._parts.around.say(words, tone)
