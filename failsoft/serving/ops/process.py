"""Serves the dashboard in a listening socket until a signal, and looks at fingerprints meanwhile.

SIGHUP reads the settings again (a bad file changes nothing), SIGTERM and SIGINT end it
at once: a page that is not out yet is asked for again; only a round that waits for the store is
waited for. Knows nothing of what pages show.
"""

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import waitress

from failsoft.config.home import home_folder
from failsoft.config.schema import load_settings
from failsoft.config.settings import Settings
from failsoft.dashboard.app import build_app
from failsoft.dashboard.observer import Observer
from failsoft.dashboard.shared_look import SharedLook
from failsoft.dashboard.standing import Standing
from failsoft.errors import ConfigError
from failsoft.serving.ops.fingerprint_schedule import FingerprintSchedule
from failsoft.serving.ops.signals import Signals

NUM_THREADS = 4
MAX_AGE_S = 1.0
"""How old a picture may be that a page shows."""

_log = logging.getLogger(__name__)


class OpsProcess:
    """The dashboard and what it looks at, and the schedule of fingerprints.

    Args:
        settings_path: The settings file; read now, and again at each `reload`.

    Raises:
        ConfigError: The settings cannot be read.
    """

    def __init__(self, settings_path: Path) -> None:
        self._settings_path = settings_path
        self._home = home_folder(os.environ)
        settings = load_settings(settings_path)
        self._observer = self._observe(settings)
        self._fingerprints = self._schedule(settings)
        self.look = SharedLook[Standing](lambda: self._observer.look(), max_age_s=MAX_AGE_S)

    def start(self) -> None:
        """Begin what runs on a timer."""
        self._fingerprints.start()

    def reload(self) -> None:
        """Read the settings again; a bad file is logged and changes nothing."""
        try:
            settings = load_settings(self._settings_path)
            fresh = self._observe(settings)
        except ConfigError as exc:
            _log.warning("the settings stay as they were: %s", exc)
            return
        before = self._observer

        def change() -> None:
            self._observer = fresh

        self.look.between(change)
        before.close()
        self._fingerprints.close()
        self._fingerprints = self._schedule(settings)
        self._fingerprints.start()

    def close(self) -> None:
        """Stop what runs on a timer, and let go of connections."""
        self._fingerprints.close()
        self._observer.close()

    def _observe(self, settings: Settings) -> Observer:
        return Observer(self._home, settings=settings, settings_path=self._settings_path)

    def _schedule(self, settings: Settings) -> FingerprintSchedule:
        return FingerprintSchedule(settings, home=self._home, environ=os.environ)


def serve(
    settings_path: Path, sock: socket.socket, *, signals: Signals, on_ready: Callable[[], None]
) -> int:
    """Serve the dashboard in *sock* until a signal; return the process's exit code.

    Args:
        settings_path: The settings file.
        sock: Bound; it is made to listen here.
        signals: Where they arrive.
        on_ready: Called once the socket listens.

    Raises:
        ConfigError: The settings cannot be read.
    """
    ops = OpsProcess(settings_path)
    app = build_app(ops.look)
    # A page asks for several things at once: that one waits for a thread is no news.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    server = waitress.create_server(app, sockets=[sock], threads=NUM_THREADS, ident=None)
    # A daemon: a page that waits for a slow source must not hold the end up.
    threading.Thread(target=server.run, name="failsoft-ops", daemon=True).start()
    on_ready()
    ops.start()
    while (number := signals.next()) == signal.SIGHUP:
        ops.reload()
    ops.close()
    return 130 if number == signal.SIGINT else 0
