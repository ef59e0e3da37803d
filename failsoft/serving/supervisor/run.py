"""One `failsoft up`, from its lock and its ports to its exit code."""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from failsoft.config.http import is_loopback
from failsoft.config.settings import Settings
from failsoft.engine.http.listen import bind
from failsoft.errors import ConfigError
from failsoft.serving.supervisor.accepted import with_absolute_paths
from failsoft.serving.supervisor.instance import clean_up, sole_supervisor
from failsoft.serving.supervisor.plan import Commands, Plans
from failsoft.serving.supervisor.supervisor import Supervisor, SupervisorConfig
from failsoft.serving.supervisor.terminal import Terminal, Tone

_BACKLOG = 2048
"""Connections that wait while the front starts."""


def supervise(
    config: SupervisorConfig,
    settings: Settings,
    *,
    port: int,
    commands: Commands,
    terminal: Terminal,
    on_ready: Callable[[Plans], None],
) -> int:
    """Run everything until a signal and return the exit code; call on the main thread.

    Args:
        config: Where things are.
        settings: What the settings file says, checked.
        port: Of the API; the pages take the next one. 0 takes free ones for both.
        commands: The children's command lines.
        terminal: Where people read what happens.
        on_ready: Called once the first answer can come.

    Raises:
        AlreadyRunningError: Another one runs on this folder.
        ConfigError: A port is taken.
    """
    with sole_supervisor(config.home), _logging_to(terminal):
        clean_up(
            config.home,
            on_wait=lambda: terminal.say(
                "waiting for the processes of a `failsoft up` that was killed …", Tone.DIM
            ),
        )
        with bind(config.host, port) as api, _bind_ops(config.host, port) as ops:
            for sock in (api, ops):  # from now on callers wait instead of being refused
                sock.listen(_BACKLOG)
            settings = with_absolute_paths(settings, base=config.path.absolute().parent)
            plans = Plans(commands, home=config.home, rules=config.rules, api=api, ops=ops)
            supervisor = Supervisor(
                config,
                settings,
                plans=plans,
                terminal=terminal,
                on_ready=lambda: on_ready(plans),
            )
            return asyncio.run(supervisor.run())


def _bind_ops(host: str, port: int) -> socket.socket:
    """Return the pages' socket: this machine only, since they ask for no key."""
    local = host if is_loopback(host) else "127.0.0.1"
    try:
        return bind(local, port and port + 1)
    except (ConfigError, OverflowError) as exc:
        raise ConfigError(
            key="port",
            value=port,
            allowed=f"a port whose next one is free on {local} too: it takes the dashboard",
        ) from exc


@contextmanager
def _logging_to(terminal: Terminal) -> Iterator[None]:
    """Have what our parts log, such as a failing store, shown as lines among the others."""
    handler = _Lines(terminal)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


class _Lines(logging.Handler):
    def __init__(self, terminal: Terminal) -> None:
        super().__init__(level=logging.WARNING)
        self._terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        self._terminal.say(self.format(record), Tone.WARNING)
