"""What a settings file pins as it lies on the disk now: read again only when it changed.

Processes run by a copy of what was accepted; where a move differs from the file, the file is meant
that a person edits.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from failsoft.config.schema import check_settings
from failsoft.engine.models.absolute import with_absolute_paths
from failsoft.errors import FailsoftError
from failsoft.fallback.pins.history import file_pins
from failsoft.pin_records import PinnedVersion

_Stamp = tuple[Path, int, int, int]


class FileOnDisk:
    """Reads the pins of one settings file after the other; not thread-safe."""

    def __init__(self) -> None:
        self._read: tuple[_Stamp, Mapping[str, PinnedVersion] | str] | None = None

    def pins(self, path: Path) -> Mapping[str, PinnedVersion] | str:
        """Return what the file at *path* pins, by slot, or in words why that cannot be told."""
        try:
            status = path.stat()
        except OSError as exc:
            return f"{path} cannot be read ({exc.strerror})"
        stamp = (path, status.st_mtime_ns, status.st_ino, status.st_size)
        if self._read is None or self._read[0] != stamp:
            self._read = (stamp, _pins_of(path))
        return self._read[1]


def _pins_of(path: Path) -> Mapping[str, PinnedVersion] | str:
    settings, problems = check_settings(path)
    if settings is None:
        return str(problems[0])
    base = path.absolute().parent
    try:
        versions = {
            name: with_absolute_paths(version, base=base)
            for name, version in settings.versions.items()
        }
    except FailsoftError as exc:
        return str(exc)
    return file_pins(replace(settings, versions=versions))
