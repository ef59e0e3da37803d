"""How each process is started, found, watched and ended.

Command lines are an argument: a test runs the same plans over programs of its own.
"""

import secrets
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from failsoft.engine.http.listen import base_url
from failsoft.fallback.discovery import EngineFinder, RunningEngine, find_candidate
from failsoft.run_state import ChildKind, accepted_settings, read_front
from failsoft.serving.supervisor.backoff import RestartRules
from failsoft.serving.supervisor.child import Launch
from failsoft.serving.supervisor.moves.rules import MoveRules
from failsoft.serving.supervisor.needs import EngineNeed
from failsoft.serving.supervisor.watch import WatchRules

ENGINE_KEY_VARIABLE = "FAILSOFT_ENGINE_KEY"
"""Environment variable with an engine's token: never on a command line, which all can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The supervisor's clocks, in seconds; a test has shorter ones."""

    restart: RestartRules = field(default_factory=RestartRules)
    watch: WatchRules = field(default_factory=WatchRules)
    patience_s: float = 20.0
    """How long an engine waits for others that load."""
    handover_s: float = 1.0
    """Between a new engine's being ready and the stop of the one it replaces."""
    front_stop_s: float = 45.0
    """From SIGTERM to SIGKILL. The front drains for 30 s, then it flushes its records."""
    engine_stop_s: float = 40.0
    ops_stop_s: float = 15.0
    hurry_s: float = 3.0
    """From the second signal to SIGKILL."""
    ops_niceness: int = 5
    """Pages and evals give way to users' calls, for good."""
    moves: MoveRules = field(default_factory=MoveRules)


class Commands(Protocol):
    """The command line of each kind of process."""

    def front(self, *, config: Path, fd: int) -> Sequence[str]:
        """Return the front's: it serves on the inherited socket *fd*."""

    def ops(self, *, config: Path, fd: int) -> Sequence[str]:
        """Return that of pages and schedules: it serves on the inherited socket *fd*."""

    def engine(
        self, *, config: Path, need: EngineNeed, is_candidate: bool = False
    ) -> Sequence[str]:
        """Return an engine's: it publishes itself under its slot, or as a candidate for it."""

    def check(self, *, config: Path, version: str) -> Sequence[str]:
        """Return that of the check of a version's files: it prints what it found as JSON."""


class OwnCommands:
    """`failsoft`'s own commands.

    Args:
        allowed_hosts: ``Host`` names that the front answers to beside its address.
    """

    def __init__(self, *, allowed_hosts: Sequence[str] = ()) -> None:
        self._allowed_hosts = allowed_hosts

    def front(self, *, config: Path, fd: int) -> Sequence[str]:
        """Return the front's command line."""
        hosts = [f"--allowed-host={host}" for host in self._allowed_hosts]
        return _failsoft("front", "--config", str(config), "--fd", str(fd), *hosts)

    def ops(self, *, config: Path, fd: int) -> Sequence[str]:
        """Return the ops process' command line."""
        return _failsoft("ops", "--config", str(config), "--fd", str(fd))

    def engine(
        self, *, config: Path, need: EngineNeed, is_candidate: bool = False
    ) -> Sequence[str]:
        """Return an engine's command line."""
        words = ["engine", "serve", "--version", need.version, "--config", str(config)]
        words += ["--slot", need.slot, "--port", "0", "--api-key-env", ENGINE_KEY_VARIABLE]
        if need.threads is not None:
            words += ["--threads", str(need.threads)]
        # Somebody waits for a candidate, often because what serves is bad: at low priority it
        # gets a quarter of the cores beside an engine that is busy, else half.
        return _failsoft(*words, "--candidate" if is_candidate else "--gentle-load")

    def check(self, *, config: Path, version: str) -> Sequence[str]:
        """Return the check's command line."""
        return _failsoft("versions", "check", version, "--config", str(config), "--json")


def _failsoft(*words: str) -> Sequence[str]:
    return (sys.executable, "-m", "failsoft", *words)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildPlan:
    """One process."""

    name: str
    kind: ChildKind
    launch: Callable[[], Launch]
    """Called at each start: an engine gets a new token each time."""
    health_url: Callable[[int], str | None]
    """Given its pid, returns where to ask for its health; None while it has not said where."""
    restart: RestartRules
    watch: WatchRules
    is_judged: bool = True
    """Whether one that hangs is killed; else it is, once ready, only watched for being alive."""
    stop_s: float
    """From SIGTERM to SIGKILL."""
    slot: str | None = None
    version: str | None = None
    is_trial: bool = False
    """Whether its first end is its last: it is not started again."""


class Plans:
    """Makes the plan of each process.

    Args:
        commands: Their command lines.
        home: failsoft's folder; the accepted settings lie in it.
        rules: The clocks.
        api: The API's socket.
        ops: The pages' socket.
    """

    def __init__(
        self,
        commands: Commands,
        *,
        home: Path,
        rules: Rules,
        api: socket.socket,
        ops: socket.socket,
    ) -> None:
        self.api_url = f"{base_url(api)}/v1"
        self.ops_url = base_url(ops)
        self._commands = commands
        self._home = home
        self._config = accepted_settings(home)
        self._rules = rules
        self._fds = {"front": api.fileno(), "ops": ops.fileno()}
        self._finder = EngineFinder(home)

    def front(self) -> ChildPlan:
        """Return the front's plan: never given up, since nothing is served without it.

        Nothing it does takes long, so being busy while it is silent buys it little time.
        """
        url = f"{self.api_url.removesuffix('/v1')}/health/live"
        fd = self._fds["front"]
        launch = Launch(argv=self._commands.front(config=self._config, fd=fd), fds=(fd,))

        def health_url(pid: int) -> str | None:
            state = read_front(self._home)
            return url if state is not None and state.pid == pid else None

        return ChildPlan(
            name="front",
            kind="front",
            launch=lambda: launch,
            health_url=health_url,
            restart=replace(self._rules.restart, is_first_free=True, max_ends=None),
            watch=replace(self._rules.watch, busy_s=2 * self._rules.watch.hang_s),
            stop_s=self._rules.front_stop_s,
        )

    def ops(self) -> ChildPlan:
        """Return the ops process' plan: a heavy page may keep it from answering for long."""
        fd = self._fds["ops"]
        launch = Launch(
            argv=self._commands.ops(config=self._config, fd=fd),
            fds=(fd,),
            niceness=self._rules.ops_niceness,
        )
        return ChildPlan(
            name="ops",
            kind="ops",
            launch=lambda: launch,
            health_url=lambda _pid: f"{self.ops_url}/health",
            restart=replace(self._rules.restart, is_first_free=True),
            watch=self._rules.watch,
            is_judged=False,
            stop_s=self._rules.ops_stop_s,
        )

    def engine(self, need: EngineNeed, name: str) -> ChildPlan:
        """Return an engine's plan.

        Args:
            need: What it runs.
            name: What it is called, which is not its slot while it replaces another.
        """
        argv = self._commands.engine(config=self._config, need=need)
        return self._engine_plan(need, name, argv, lambda: self._finder.find(need.slot))

    def candidate(self, need: EngineNeed, name: str, *, config: Path) -> ChildPlan:
        """Return the plan of an engine that is on trial for its slot.

        Args:
            need: What it runs.
            name: What it is called meanwhile.
            config: The settings it reads, in which its slot is pinned to its version.
        """
        argv = self._commands.engine(config=config, need=need, is_candidate=True)
        plan = self._engine_plan(need, name, argv, lambda: find_candidate(self._home, need.slot))
        return replace(plan, is_trial=True)

    def check(self, version: str, *, config: Path) -> Sequence[str]:
        """Return the command line that checks *version* of the settings in *config*."""
        return self._commands.check(config=config, version=version)

    def _engine_plan(
        self,
        need: EngineNeed,
        name: str,
        argv: Sequence[str],
        find: Callable[[], RunningEngine | str],
    ) -> ChildPlan:
        def health_url(pid: int) -> str | None:
            engine = find()
            if not isinstance(engine, RunningEngine) or engine.pid != pid:
                return None
            return f"{engine.url.removesuffix('/v1')}/health/ready"

        return ChildPlan(
            name=name,
            kind="engine",
            launch=lambda: _engine_launch(argv),
            health_url=health_url,
            restart=self._rules.restart,
            watch=self._rules.watch,
            stop_s=self._rules.engine_stop_s,
            slot=need.slot,
            version=need.version,
        )


def _engine_launch(argv: Sequence[str]) -> Launch:
    """Return how to start an engine, with a token that only its slot's file tells."""
    return Launch(argv=argv, environ={ENGINE_KEY_VARIABLE: secrets.token_urlsafe(32)})
