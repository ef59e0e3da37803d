"""Runs a `FingerprintRound` every few minutes beside the dashboard, on a thread of its own."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from apscheduler.schedulers.background import BackgroundScheduler

from failsoft.config.settings import Settings
from failsoft.errors import FailsoftError
from failsoft.serving.ops.fingerprint_round import FingerprintRound
from failsoft.store import Store

FIRST_S = 20.0
"""After the start, when the engines load; the first round comes then."""

_log = logging.getLogger(__name__)


class FingerprintSchedule:
    """Rounds on a timer; one at a time, and those that were missed are one.

    Args:
        settings: How often, and the endpoints.
        home: failsoft's folder.
        environ: Where API keys and the store's password are.
        first_s: Seconds until the first round.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        home: Path,
        environ: Mapping[str, str],
        first_s: float = FIRST_S,
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._first_s = first_s
        self._round = FingerprintRound(settings, home=home, environ=environ)
        self._scheduler: BackgroundScheduler | None = None
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    def start(self) -> None:
        """Begin; does nothing where the settings say 0."""
        every_s = self._settings.fingerprint.every_s
        if not every_s:
            return
        self._scheduler = BackgroundScheduler(timezone=UTC)
        self._scheduler.add_job(
            self.run_once,
            "interval",
            seconds=every_s,
            next_run_time=datetime.now(UTC) + timedelta(seconds=self._first_s),
            max_instances=1,
            coalesce=True,
            misfire_grace_time=max(1, int(every_s)),
        )
        self._scheduler.start()

    def run_once(self) -> None:
        """Run one round now; what keeps it from its end is logged."""
        try:
            with (
                contextlib.suppress(asyncio.CancelledError),
                Store(self._settings.store, environ=self._environ) as store,
            ):
                asyncio.run(self._look(store))
        except FailsoftError as exc:
            _log.warning("fingerprints were not taken: %s", exc)

    def close(self) -> None:
        """Stop; a round that runs is broken off."""
        with self._lock:
            self._is_closed = True
            if self._running is not None:
                loop, task = self._running
                loop.call_soon_threadsafe(task.cancel)
        if self._scheduler is not None:
            self._scheduler.shutdown(wait=True)

    async def _look(self, store: Store) -> None:
        task = asyncio.create_task(self._run(store))
        with self._lock:
            if self._is_closed:
                task.cancel()
            self._running = (asyncio.get_running_loop(), task)
        try:
            await task
        finally:
            with self._lock:
                self._running = None

    async def _run(self, store: Store) -> None:
        await self._round.run(store)
