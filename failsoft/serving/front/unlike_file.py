"""Which slots a move has pinned to something else than the settings file says, for the metrics.

The front itself reads a copy with the moved pins over the file's; what a person edits is where
`failsoft up` says. One event loop owns it.
"""

from collections.abc import Callable
from pathlib import Path

from failsoft.fallback.pins.file_on_disk import FileOnDisk
from failsoft.fallback.pins.pinned import is_same_version
from failsoft.pin_records import PinnedVersion
from failsoft.run_state import read_supervisor


class UnlikeFile:
    """Compares moved pins with the settings file as it is now.

    Args:
        home: failsoft's folder.
        path: The front's own settings, which count where no `failsoft up` runs.
        moved: Returns what a move pinned a slot to; None when the settings file decides.
    """

    def __init__(
        self, home: Path, path: Path, *, moved: Callable[[str], PinnedVersion | None]
    ) -> None:
        self._home = home
        self._path = path
        self._moved = moved
        self._on_disk = FileOnDisk()

    def slots(self) -> dict[str, bool]:
        """Return for each slot of the file whether its pin differs; empty if nobody can tell."""
        supervisor = read_supervisor(self._home)
        path = self._path if supervisor is None else Path(supervisor.settings)
        said = self._on_disk.pins(path)
        if isinstance(said, str):
            return {}
        return {slot: self._differs(slot, version) for slot, version in said.items()}

    def _differs(self, slot: str, said: PinnedVersion) -> bool:
        moved = self._moved(slot)
        return moved is not None and not is_same_version(moved, said)
