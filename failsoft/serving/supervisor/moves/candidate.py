"""The engine on trial: checked, started beside the old one, made to show what it is.

It reads settings of its own (`candidate_settings`), is published beside its slot, and is
started once: its end is the end of its move.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from failsoft.config.run_files import write_private
from failsoft.errors import PinError
from failsoft.fallback.discovery import RunningEngine, find_candidate
from failsoft.fallback.pins.evidence import Evidence, judge_evidence
from failsoft.fallback.pins.history import was_confirmed
from failsoft.pin_records import PinMove, PinnedVersion
from failsoft.serving.supervisor.accepted import copy_of
from failsoft.serving.supervisor.keeper import Keeper
from failsoft.serving.supervisor.moves.checking import (
    CheckReport,
    check_known_digest,
    check_memory,
    private_bytes,
    run_check,
)
from failsoft.serving.supervisor.moves.parts import MoveParts, candidate_settings
from failsoft.serving.supervisor.moves.trial import (
    TrialError,
    as_proof,
    check_digest,
    reported_digest,
    smoke,
    warm_up,
)
from failsoft.serving.supervisor.needs import EngineNeed, engines_needed

if TYPE_CHECKING:
    from failsoft.store.store import Store


class Candidate:
    """The engine that a move brings; one event loop owns it.

    Args:
        move: Who asked for what.
        parts: What all moves share.
        proof: What is learnt is put in here.
    """

    def __init__(self, move: PinMove, parts: MoveParts, proof: dict[str, object]) -> None:
        self._move = move
        self._parts = parts
        self._proof = proof
        self._slot = move.slot
        self._path = candidate_settings(parts.home, move.slot)
        self._target = move.to
        self._need: EngineNeed | None = None
        self._keeper: Keeper | None = None
        self._ready = asyncio.Event()
        self._engine: RunningEngine | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the engine has ended."""
        self.is_unproven = False
        """Whether it was taken although nothing speaks for it."""

    @property
    def is_started(self) -> bool:
        """Whether there was an engine already."""
        return self._keeper is not None

    @property
    def end_words(self) -> str | None:
        """Return how the engine ended; None while it runs."""
        if self._keeper is None or not self.ended.done():
            return None
        return f"the new engine ended: {self._keeper.state.last_exit}"

    @property
    def pid(self) -> int:
        """The engine's process, once it was ready."""
        return self._running.pid

    # Before it is started.

    async def check(self) -> PinnedVersion:
        """Look at the target's files, memory and evidence; return it with its digest.

        Raises:
            TrialError: It cannot be brought.
        """
        parts = self._parts
        need = self._write_settings()
        argv = parts.plans.check(need.version, config=self._path)
        report = await self._run_check(argv)
        check_known_digest(self._target, report.digest)
        self._target = replace(self._target, digest=report.digest)
        leaving = parts.roster.leaving
        try:
            self._check_memory(report)
        except TrialError:
            if not leaving:
                raise
            # As after a move whose drain nobody waited for: what they hold is free in a moment.
            await asyncio.wait({keeper.task for keeper in leaving})
            report = await self._run_check(argv)
            self._check_memory(report)
        self._check_evidence(await parts.desk.do(self._find_evidence))
        parts.needs_bytes[self._slot] = report.needs_bytes or 0
        return self._target

    async def _run_check(self, argv: Sequence[str]) -> CheckReport:
        parts = self._parts
        return await run_check(argv, environ=parts.environ, lifeline_fd=parts.lifeline_fd)

    def _check_memory(self, report: CheckReport) -> None:
        parts = self._parts
        taken = sum(size for slot, size in parts.needs_bytes.items() if slot != self._slot)
        seated = parts.roster.seated(self._slot)
        freed = private_bytes(None if seated is None else seated.keeper.state.pid)
        check_memory(report, swap=self._move.swap, freed_bytes=freed, taken_bytes=taken)

    def check_needed(self) -> EngineNeed:
        """Return what the slot is to run once it has switched.

        Raises:
            TrialError: Settings that were taken meanwhile use the slot no more.
        """
        settings = self._parts.standing.settings_with(self._slot, self._target)
        for need in engines_needed(settings, num_cores=self._parts.num_cores):
            if need.slot == self._slot:
                self._need = need
                return need
        raise TrialError("no ladder of the settings uses the slot; name it in one, and ask again")

    def _write_settings(self) -> EngineNeed:
        try:
            need = self.check_needed()
            settings = self._parts.standing.settings_with(self._slot, self._target)
            write_private(self._path, copy_of(settings))
        except PinError as exc:
            raise TrialError(str(exc)) from exc
        except OSError as exc:
            raise TrialError(f"{self._path.parent} takes no file: {exc}; make room") from exc
        return need

    def _find_evidence(self, store: "Store") -> Evidence:
        pins, scores = store.pins.pins(), store.eval_scores
        pin = pins.get(self._slot)
        pinned = None if pin is None else pin.version.digest
        digest = self._target.digest
        assert digest is not None, "it was checked"
        earlier = [m for m in store.pins.history(self._slot) if m.move_id != self._move.move_id]
        return judge_evidence(
            kind=self._move.kind,
            target=scores.newest(digest),
            pinned={} if pinned is None else scores.newest(pinned),
            was_confirmed=digest == pinned or was_confirmed(earlier, self._target),
            accept_unproven=self._move.accept_unproven,
        )

    def _check_evidence(self, evidence: Evidence) -> None:
        if not evidence.is_enough:
            raise TrialError(
                f"{self._target.name} is not proven: {evidence.words}; run an eval of it, or take "
                "it all the same with `--accept-unproven`"
            )
        self.is_unproven = evidence.is_accepted
        self._proof["evidence"] = {"words": evidence.words, "accepted": evidence.is_accepted}

    # The running engine.

    async def start(self) -> None:
        """Start it and wait until it is ready."""
        parts = self._parts
        # Once more: settings that were read again since may mean another version by its name.
        need = self._write_settings()
        plan = parts.plans.candidate(need, f"{self._slot}.new", config=self._path)
        self._keeper = parts.keep_trial(plan, on_ready=lambda _: self._ready.set())
        self._keeper.task.add_done_callback(self._note_end)
        parts.roster.try_out(self._slot, self._keeper)
        await self._ready.wait()
        parts.needs_bytes.pop(self._slot, None)
        found = find_candidate(parts.home, self._slot)
        if isinstance(found, str) or found.pid != self._keeper.state.pid:
            raise TrialError("it was ready and is gone")
        self._engine = found
        self._proof["pid"] = found.pid

    def _note_end(self, _task: "asyncio.Task[None]") -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    async def warm_up(self) -> None:
        """Have it answer prompts of differing lengths."""
        await warm_up(self._running, answer_s=self._parts.rules.answer_s)

    async def prove(self) -> None:
        """Have the running process say what it is, and compare what it answers."""
        digest = await reported_digest(self._running, answer_s=self._parts.rules.answer_s)
        check_digest(digest, self._digest)
        self._proof["digest"] = digest
        self._proof["fingerprint"] = await self._parts.fingerprint(
            self._running, digest, is_awaited=self._move.swap == "stop-first"
        )

    async def smoke(self) -> None:
        """Have it answer a few chats."""
        answer_s = self._parts.rules.answer_s
        replies = await smoke(self._running, digest=self._digest, answer_s=answer_s)
        self._proof["smoke"] = as_proof(replies)

    async def end(self) -> None:
        """Stop it, and forget its settings."""
        await self._parts.roster.end_trial(self._slot)
        self.forget()

    def forget(self) -> None:
        """Remove what only a start of it would need."""
        self._parts.needs_bytes.pop(self._slot, None)
        self._path.unlink(missing_ok=True)

    def install(self) -> Keeper:
        """Give it the slot's seat; return the keeper of the engine that leaves.

        From now on it is started again like any other, by the settings that all read.
        """
        assert self._keeper is not None, "it was tried out"
        assert self._need is not None, "it was checked"
        # As it was right before the switch: settings that came in that moment follow.
        leaving = self._parts.roster.install(self._slot, self._need)
        self._keeper.adopt(self._parts.plans.engine(self._need, self._slot))
        return leaving

    @property
    def _running(self) -> RunningEngine:
        assert self._engine is not None, "it was started"
        return self._engine

    @property
    def _digest(self) -> str:
        assert self._target.digest is not None, "it was checked"
        return self._target.digest
