"""SIGHUP: the same settings file read again, all of it or nothing.

Calls under way end by the settings they began with. Stamps are UTC epoch milliseconds.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from failsoft.config.schema import load_settings
from failsoft.errors import ConfigError
from failsoft.run_state import Reload
from failsoft.serving.front.front import Front
from failsoft.serving.front.keyring import read_keyring


class Reloader:
    """Reads a front's settings again when told to, one time after the other.

    Args:
        front: What answers by them.
        path: The file.
        environ: Where keys are.
        tell: Told in one line what became of it.
    """

    def __init__(
        self,
        front: Front,
        path: Path,
        *,
        environ: Mapping[str, str],
        tell: Callable[[str], None],
    ) -> None:
        self._front = front
        self._path = path
        self._environ = environ
        self._tell = tell
        self._is_wanted = False
        self._task: asyncio.Task[None] | None = None

    def ask(self, _signal: int = 0) -> None:
        """Read again soon; asking while that goes on reads once more after it."""
        self._is_wanted = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._is_wanted:
            self._is_wanted = False
            error = await self._read()
            at_ms = int(time.time() * 1000)
            self._front.last_reload = Reload(at_ms=at_ms, error=error)
            if error is None:
                self._front.settings_read_at_ms = at_ms
                self._tell(f"{self._path} was read again: {len(self._front.ladders)} ladder(s)")
            else:
                self._tell(f"{self._path} was refused, the old settings stay: {error}")

    async def _read(self) -> str | None:
        """Take the file over; return why it was refused."""
        front = self._front
        try:
            # On a thread: open streams must not wait for the file.
            settings = await asyncio.to_thread(load_settings, self._path)
            if not settings.ladders:  # such as a file that is just being written
                allowed = "at least one [ladders.NAME], which callers ask"
                raise ConfigError(key="ladders", value=None, allowed=allowed)
            keyring = read_keyring(settings, self._environ, host=front.host)
            front.client.reload(settings)
        except ConfigError as exc:
            return str(exc)
        front.keyring = keyring
        front.note_ladders()
        return None
