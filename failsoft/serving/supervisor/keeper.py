"""Keeps one process running: starts it, starts it again after it ended, or gives it up.

Knows nothing of settings or of the other processes.
"""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from failsoft.run_state import ChildPhase, ChildState
from failsoft.serving.supervisor.backoff import RestartPolicy
from failsoft.serving.supervisor.child import CONFIG_EXIT, Child, Exit, Launch
from failsoft.serving.supervisor.gate import StartGate, Ticket
from failsoft.serving.supervisor.life import Ended, Life
from failsoft.serving.supervisor.plan import ChildPlan
from failsoft.serving.supervisor.state_file import now_ms
from failsoft.serving.supervisor.terminal import Tone
from failsoft.serving.supervisor.text import Piece


class Record(Protocol):
    """Records an event."""

    def __call__(self, kind: str, subject: str, **detail: str | float | None) -> None:
        """Record one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What every keeper shares."""

    start: Callable[[Launch, Callable[[Piece], None]], Awaitable[Child | Exit]]
    hear: Callable[[str, Piece], None]
    """Told what the child of that name says."""
    say: Callable[[str, Tone], None]
    record: Record
    gate: StartGate
    hurry: asyncio.Event
    """Set when everything is to end now."""
    hurry_s: float
    """What a process gets after that to say its last words."""
    random: Callable[[], float]
    on_change: Callable[[], None]
    """Called after each change of what `Keeper.state` tells."""


class Keeper:
    """One process and what becomes of it; one event loop owns it.

    Args:
        plan: The process.
        around: What all keepers share.
        on_ready: Called each time the process is ready.
        on_refused: Called when it will not run with these settings, with its last words.
    """

    def __init__(
        self,
        plan: ChildPlan,
        *,
        around: Surroundings,
        on_ready: Callable[["Keeper"], None],
        on_refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.plan = plan
        self.name = plan.name
        self.phase: ChildPhase = "starting"
        self._around = around
        self._on_ready = on_ready
        self._on_refused = on_refused
        self._policy = RestartPolicy(plan.restart, random=around.random)
        self._child: Child | None = None
        self._life: Life | None = None
        self._since_ms = now_ms()
        self._num_starts = 0
        self._last_exit: str | None = None
        self._was_ever_ready = False
        self._must_reload = False
        self._stopping = asyncio.Event()
        self._nudge = asyncio.Event()
        self._entering: asyncio.Task[Ticket] | None = None
        self.task = asyncio.create_task(self._keep(), name=f"keeper {plan.name}")

    @property
    def state(self) -> ChildState:
        """What the supervisor's file tells of it."""
        return ChildState(
            name=self.name,
            kind=self.plan.kind,
            phase=self.phase,
            pid=None if self._child is None else self._child.pid,
            since_ms=self._since_ms,
            num_restarts=max(0, self._num_starts - 1),
            slot=self.plan.slot,
            version=self.plan.version,
            last_exit=self._last_exit,
        )

    @property
    def title(self) -> str:
        """What people read of it."""
        return f"engine {self.name}" if self.plan.kind == "engine" else self.name

    def reload(self) -> None:
        """Have the process read its settings again; one that is starting does so when ready."""
        if self.phase == "running" and self._child is not None:
            self._child.send(signal.SIGHUP)
        else:
            self._must_reload = True

    def retry(self) -> None:
        """Try again now, if it was given up or waits."""
        if self.phase in ("gave_up", "waiting"):
            self._policy.forget()
            self._nudge.set()

    def adopt(self, plan: ChildPlan) -> None:
        """Run by *plan* from the next start on: a trial that was passed is over."""
        self.plan = plan
        self._policy = RestartPolicy(plan.restart, random=self._around.random)

    async def stop(self) -> None:
        """End the process for good: SIGTERM, and SIGKILL at its cap or when all must hurry."""
        self._stopping.set()
        self._nudge.set()
        if self._entering is not None:
            self._entering.cancel()
        self._enter("stopping")
        if self._life is not None:
            self._life.is_judged = False
        self._send_term()
        hurry = asyncio.create_task(self._around.hurry.wait())
        waited = {self.task, hurry}
        await asyncio.wait(waited, timeout=self.plan.stop_s, return_when=asyncio.FIRST_COMPLETED)
        if not self.task.done() and hurry.done():
            self._send_term()
            await asyncio.wait({self.task}, timeout=self._around.hurry_s)
        hurry.cancel()
        if not self.task.done() and self._child is not None:
            self._around.say(f"{self.title}: did not stop in time and is killed", Tone.WARNING)
            self._child.kill()
        await asyncio.wait({self.task})

    def _send_term(self) -> None:
        if self._child is not None:
            self._child.send(signal.SIGTERM)

    # One run after another.

    async def _keep(self) -> None:
        while not self._stopping.is_set():
            ticket = await self._turn()
            try:
                ended = None if self._stopping.is_set() else await self._live(ticket)
            finally:
                ticket.give_back()
            if ended is None or self._stopping.is_set():
                return
            if self.plan.is_trial:
                self._note_trials_end(ended)
                return
            self._nudge.clear()
            delay_s = self._after(ended)
            with suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._nudge.wait()

    async def _turn(self) -> Ticket:
        """Return the right to start; only engines wait for it."""
        if self.plan.kind != "engine":
            return Ticket(None)
        self._entering = asyncio.create_task(self._around.gate.enter())
        try:
            return await self._entering
        except asyncio.CancelledError:
            if self._stopping.is_set():
                return Ticket(None)
            raise
        finally:
            self._entering = None

    async def _live(self, ticket: Ticket) -> Ended:
        """Start the process and return how it ended."""
        self._num_starts += 1
        began = await self._around.start(
            self.plan.launch(), lambda piece: self._around.hear(self.name, piece)
        )
        if isinstance(began, Exit):
            return Ended(exit=began, at_s=time.monotonic())

        def ready(after_s: float) -> None:
            ticket.give_back()
            self._note_ready(began, after_s)

        self._child = began
        self._enter("stopping" if self._stopping.is_set() else "starting")
        if self._stopping.is_set():  # told so while it was being started
            self._send_term()
        self._life = Life(self.plan, began, on_ready=ready)
        self._life.is_judged &= not self._stopping.is_set()
        try:
            return await self._life.run()
        finally:
            self._child = self._life = None

    def _note_ready(self, child: Child, after_s: float) -> None:
        if self._stopping.is_set():
            return
        self._was_ever_ready = True
        self._around.say(f"{self.title}: ready after {after_s:.1f} s", Tone.GOOD)
        if self._num_starts > 1 and self.plan.kind == "engine":
            self._around.record("engine.restarted", self._subject, after_s=round(after_s, 1))
        self._enter("running")
        if self._must_reload:
            self._must_reload = False
            child.send(signal.SIGHUP)
        self._on_ready(self)

    # What to do after an end.

    def _after(self, ended: Ended) -> float | None:
        """Tell of an end and return the seconds until the next start; None when given up."""
        self._last_exit = ended.start_words
        delay_s = self._policy.delay_after(ended_s=ended.at_s, ready_for_s=ended.ready_for_s)
        if ended.exit.code == CONFIG_EXIT and ended.ready_for_s is None:
            delay_s = self._refused(ended, delay_s)
        is_hung = ended.hung is not None
        kind = f"{self.plan.kind}.{'hung' if is_hung and self.plan.kind == 'engine' else 'died'}"
        again_s = None if delay_s is None else round(delay_s, 1)
        self._around.record(kind, self._subject, why=ended.words, restart_in_s=again_s)
        if delay_s is None:
            self._give_up(ended)
            return None
        again = "at once" if delay_s == 0 else f"in {delay_s:.1f} s"
        what = "hung" if is_hung else "died"
        self._around.say(f"{self.title}: {what}: {ended.words}; restarting {again} …", Tone.WARNING)
        self._enter("waiting")
        return delay_s

    def _note_trials_end(self, ended: Ended) -> None:
        """Whoever tries it out tells of the end, with its last words: no user has asked it."""
        last = f": {ended.exit.last_line}" if ended.exit.last_line else ""
        self._last_exit = f"{ended.words}{last}"
        self._enter("gave_up")

    def _refused(self, ended: Ended, delay_s: float | None) -> float | None:
        """Return what to do when the settings are the reason: they are the same next time."""
        if self.plan.kind == "front" and self._was_ever_ready:
            return delay_s  # the front is never given up
        self._on_refused(ended.exit.last_line)
        return None

    def _give_up(self, ended: Ended) -> None:
        last = f"; its last line: {ended.exit.last_line}" if ended.exit.last_line else ""
        self._around.say(f"{self.title}: gave up: {ended.words}{last}", Tone.BAD)
        if self.plan.kind != "front":  # without it nothing goes on
            self._around.say(
                f"{self.title}: the others go on; mend the cause, then SIGHUP this process to "
                "try again, or start `failsoft up` anew",
                Tone.BAD,
            )
        if self.plan.kind == "engine":
            self._around.record("engine.gave_up", self._subject, why=ended.words)
        self._enter("gave_up")

    @property
    def _subject(self) -> str:
        return self.plan.slot or self.plan.name

    def _enter(self, phase: ChildPhase) -> None:
        self.phase = phase
        self._since_ms = now_ms()
        self._around.on_change()
