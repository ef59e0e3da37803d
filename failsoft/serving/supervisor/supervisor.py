"""The supervisor: front, ops and engines under one roof, from the first start to the last exit.

No request passes through here and no model is loaded: it stays small and idle. SIGTERM and
Ctrl-C stop, a second one at once; SIGHUP reads the settings again.
"""

import asyncio
import os
import random
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from failsoft.config.settings import Settings
from failsoft.fallback.discovery import EngineFinder
from failsoft.pin_records import PinMove
from failsoft.run_state import accepted_settings, withdraw_supervisor
from failsoft.serving.supervisor.child import CONFIG_EXIT, Child, Exit, Launch, start
from failsoft.serving.supervisor.children_settings import ChildrenSettings
from failsoft.serving.supervisor.events import EventLog
from failsoft.serving.supervisor.gate import StartGate
from failsoft.serving.supervisor.hangup import CHECK_S, Hangup
from failsoft.serving.supervisor.keeper import Keeper, Surroundings
from failsoft.serving.supervisor.moves.desk import PinDesk
from failsoft.serving.supervisor.moves.given_back import GivenBack
from failsoft.serving.supervisor.moves.mover import Mover
from failsoft.serving.supervisor.moves.owner import owner_name
from failsoft.serving.supervisor.moves.parts import MoveParts
from failsoft.serving.supervisor.moves.standing import Standing
from failsoft.serving.supervisor.moves.weights import Weights
from failsoft.serving.supervisor.plan import ChildPlan, Plans, Rules
from failsoft.serving.supervisor.reload import read_again
from failsoft.serving.supervisor.roster import Roster
from failsoft.serving.supervisor.state_file import StateFile
from failsoft.serving.supervisor.terminal import Terminal, Tone
from failsoft.serving.supervisor.text import Piece

_PREFIX_COLUMNS = 16
"""What a child's terminal is narrower than ours, for its name."""
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_CTRL_C_EXIT = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorConfig:
    """What one `failsoft up` runs by, apart from the settings, which may be read again."""

    path: Path
    """The settings file."""
    home: Path
    host: str
    """Where the API listens."""
    environ: Mapping[str, str] = field(repr=False)
    num_cores: int
    rules: Rules = field(default_factory=Rules)


class Supervisor:
    """Runs until a signal; make it and call `run` on the main thread, inside an event loop.

    Args:
        config: Where things are.
        settings: Accepted, paths absolute.
        plans: How each process is run.
        terminal: Where people read what happens.
        on_ready: Called once the first answer can come.
    """

    def __init__(
        self,
        config: SupervisorConfig,
        settings: Settings,
        *,
        plans: Plans,
        terminal: Terminal,
        on_ready: Callable[[], None],
    ) -> None:
        self._config = config
        self._standing = Standing(settings)
        self._plans = plans
        self._terminal = terminal
        self._on_ready = on_ready
        self._is_announced = False
        self._exit_code: int | None = None
        self._bug: BaseException | None = None
        self._hangup = Hangup()
        self._over, self._hurry = asyncio.Event(), asyncio.Event()
        self._lifeline = os.pipe()
        self._state = StateFile(
            config.home,
            settings=config.path,
            api_url=plans.api_url,
            ops_url=plans.ops_url,
            children=lambda: [keeper.state for keeper in self._keepers],
            unlike_file=lambda: self._standing.unlike_file,
            on_written=self._announce_once,
            on_trouble=lambda text: terminal.say(text, Tone.WARNING),
        )
        self._events = EventLog(
            settings.store,
            environ=config.environ,
            on_trouble=lambda text: terminal.say(text, Tone.WARNING),
        )
        self._around = Surroundings(
            start=self._start,
            hear=terminal.hear,
            say=terminal.say,
            record=self._events.record,
            gate=StartGate(width=max(1, config.num_cores // 2), patience_s=config.rules.patience_s),
            hurry=self._hurry,
            hurry_s=config.rules.hurry_s,
            random=random.random,
            on_change=self._state.note_change,
        )
        self._roster = Roster(
            lambda need, name: self._keep(plans.engine(need, name)),
            handover_s=config.rules.handover_s,
            on_change=self._state.note_change,
        )

        self._settings = ChildrenSettings(
            self._standing,
            roster=self._roster,
            readers=lambda: (self._front, self._ops),
            home=config.home,
            num_cores=config.num_cores,
            on_trouble=lambda text: terminal.say(text, Tone.BAD),
        )
        self._desk = PinDesk(
            settings.store,
            environ=config.environ,
            on_moves=lambda moves: self._mover.on_moves(moves),
            on_holding=lambda holding: self._on_holding(holding),
            on_trouble=lambda text: terminal.say(text, Tone.WARNING),
            poll_s=config.rules.moves.poll_s,
        )
        self._mover = Mover(self._move_parts(), is_local=settings.store.is_sqlite)
        self._given_back = GivenBack(
            self._standing, learn=self._mover.note_settings, say=terminal.say
        )

    def _move_parts(self) -> MoveParts:
        config = self._config
        return MoveParts(
            desk=self._desk,
            standing=self._standing,
            roster=self._roster,
            plans=self._plans,
            around=self._around,
            rules=config.rules.moves,
            finder=EngineFinder(config.home),
            home=config.home,
            num_cores=config.num_cores,
            environ=config.environ,
            lifeline_fd=self._lifeline[0],
            keep_trial=self._keep_trial,
            fingerprint=Weights(self._desk),
            keep_settings=self._settings.keep,
            tell_children=self._settings.tell,
            apply=self._settings.apply,
            owner=owner_name(config.home),
        )

    def _on_holding(self, holding: Mapping[str, PinMove]) -> None:
        if not self._over.is_set():
            self._given_back.on_holding(holding)

    async def run(self) -> int:
        """Start everything, and return the exit code once everything has ended."""
        loop = asyncio.get_running_loop()
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, self._on_stop, number)
        await self._mover.begin()
        self._settings.keep()
        if not self._over.is_set():
            loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
            await self._live()
        await asyncio.to_thread(self._close)
        if self._bug is not None:
            raise self._bug
        return self._exit_code or 0

    async def _live(self) -> None:
        """Start everything, and end it once that is asked for."""
        self._front = self._keep(self._plans.front(), on_refused=self._end_refused)
        self._ops = self._keep(self._plans.ops())
        self._settings.follow()
        self._mover.go_on()
        while not self._over.is_set():
            self._hangup.look()
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_S):
                    await self._over.wait()
        # The front first, so that what it has open still finds its engines.
        await asyncio.gather(self._front.stop(), self._mover.stop())
        await asyncio.gather(self._ops.stop(), self._roster.stop())
        self._state.stop()

    def _close(self) -> None:
        """Let go of what may have to be waited for."""
        self._events.close()
        self._desk.close()
        withdraw_supervisor(self._config.home, os.getpid())
        accepted_settings(self._config.home).unlink(missing_ok=True)
        for end in self._lifeline:
            os.close(end)

    # The processes.

    def _keep(
        self, plan: ChildPlan, *, on_refused: Callable[[str], None] = lambda _: None
    ) -> Keeper:
        keeper = Keeper(plan, around=self._around, on_ready=self._note_ready, on_refused=on_refused)
        keeper.task.add_done_callback(self._note_keepers_end)
        return keeper

    def _keep_trial(self, plan: ChildPlan, *, on_ready: Callable[[Keeper], None]) -> Keeper:
        keeper = Keeper(plan, around=self._around, on_ready=on_ready)
        keeper.task.add_done_callback(self._note_keepers_end)
        return keeper

    def _note_ready(self, keeper: Keeper) -> None:
        self._roster.note_ready(keeper)
        if keeper.plan.slot is not None:
            self._mover.note_engine(keeper.plan.slot)

    @property
    def _keepers(self) -> list[Keeper]:
        return [self._front, self._ops, *self._roster.keepers]

    async def _start(self, launch: Launch, on_piece: Callable[[Piece], None]) -> Child | Exit:
        columns = None
        if self._terminal.is_terminal:
            columns = max(20, self._terminal.columns - _PREFIX_COLUMNS)
        return await start(
            launch,
            environ=self._config.environ,
            lifeline_fd=self._lifeline[0],
            on_piece=on_piece,
            columns=columns,
        )

    def _announce_once(self) -> None:
        """Say that it is ready when the first answer can come, or when no engine ever will."""
        phases = {keeper.phase for keeper in self._roster.keepers}
        can_answer = "running" in phases or phases <= {"gave_up"}
        if not self._is_announced and can_answer and self._front.phase == "running":
            self._is_announced = True
            self._on_ready()

    def _note_keepers_end(self, task: "asyncio.Task[None]") -> None:
        """A keeper ends when it is told to; by itself only by a bug, which must not go unseen."""
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._bug = bug
            self._hurry.set()
            self._over.set()

    def _end_refused(self, last_line: str) -> None:
        """End: without a front nothing is served."""
        self._terminal.say(f"nothing can be served; the front says: {last_line}", Tone.BAD)
        self._exit_code = CONFIG_EXIT
        self._over.set()

    # Signals.

    def _on_stop(self, number: signal.Signals) -> None:
        if self._over.is_set():
            self._hurry.set()
            return
        self._terminal.say(
            "stopping: open answers may finish; a second signal stops now …", Tone.DIM
        )
        self._exit_code = _CTRL_C_EXIT if number == signal.SIGINT else 0
        self._over.set()

    def _on_hangup(self) -> None:
        if self._over.is_set():
            return  # a closed terminal is told twice, by the shell and by the kernel
        if self._hangup.is_real:
            self._on_stop(signal.SIGTERM)
        else:
            self._reload()

    def _reload(self) -> None:
        """Take the settings file as it is now, or nothing of it."""
        settings, problems = read_again(
            self._config.path,
            before=self._standing.file,
            effective=self._standing.settings_for,
            home=self._config.home,
            host=self._config.host,
            environ=self._config.environ,
        )
        self._state.note_reload("; ".join(map(str, problems)) or None)
        if settings is None:
            for problem in problems:
                self._terminal.say(f"settings: {problem}", Tone.BAD)
            self._terminal.say("settings: refused as a whole; the old ones stay", Tone.BAD)
            keys = ", ".join(problem.key for problem in problems)
            self._events.record("settings.refused", "settings", keys=keys)
            return
        change = self._settings.take(settings)
        for keeper in (self._front, self._ops):
            keeper.retry()
        self._roster.retry()
        self._terminal.say(f"settings: read again; {change.words}", Tone.GOOD)
        self._events.record("settings.reloaded", "settings", engines=change.words)
        self._mover.note_settings()
