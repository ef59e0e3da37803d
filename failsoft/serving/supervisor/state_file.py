"""Writes what runs where others of this machine read it, once for each turn of the event loop."""

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from failsoft.run_state import ChildState, Reload, SupervisorState, write_supervisor


class StateFile:
    """The supervisor's file; one event loop owns it.

    Args:
        home: failsoft's folder.
        settings: Path of the settings file.
        api_url: Where the API is, ``/v1`` included.
        ops_url: Where the pages are.
        children: Returns the state of each process.
        unlike_file: Returns the slots that a move has pinned to something else than the file.
        on_written: Called after each write: who hears of it may look there next.
        on_trouble: Told in words when it cannot be written.
    """

    def __init__(
        self,
        home: Path,
        *,
        settings: Path,
        api_url: str,
        ops_url: str,
        children: Callable[[], Iterable[ChildState]],
        unlike_file: Callable[[], Iterable[str]],
        on_written: Callable[[], None],
        on_trouble: Callable[[str], None],
    ) -> None:
        self._home = home
        self._settings = settings
        self._api_url = api_url
        self._ops_url = ops_url
        self._children = children
        self._unlike_file = unlike_file
        self._on_written = on_written
        self._on_trouble = on_trouble
        self._started_at_ms = now_ms()
        self._last_reload: Reload | None = None
        self._changed: asyncio.Handle | None = None

    def note_change(self) -> None:
        """Write soon, once, however much changes in one turn of the loop."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().call_soon(self._write)

    def note_reload(self, error: str | None) -> None:
        """Tell that the settings were read again.

        Args:
            error: Why the old ones stay; None when the new ones took over.
        """
        self._last_reload = Reload(at_ms=now_ms(), error=error)
        self.note_change()

    def stop(self) -> None:
        """Write nothing more."""
        if self._changed is not None:
            self._changed.cancel()

    def _write(self) -> None:
        self._changed = None
        state = SupervisorState(
            pid=os.getpid(),
            started_at_ms=self._started_at_ms,
            settings=str(self._settings),
            api_url=self._api_url,
            ops_url=self._ops_url,
            children=tuple(self._children()),
            last_reload=self._last_reload,
            unlike_file=tuple(self._unlike_file()),
        )
        try:
            write_supervisor(self._home, state)
        except OSError as exc:
            self._on_trouble(f"cannot tell others what runs: {exc}")
        self._on_written()


def now_ms() -> int:
    """Return the wall clock, UTC epoch milliseconds."""
    return int(time.time() * 1000)
