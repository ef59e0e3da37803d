"""What each slot is to run: the settings file, over it the moved pins, over both moves under way.

Pure. A pinned version keeps its own table, so each gets it into the settings that children
read: under its name, or, where the file means something else by that name by now, under one
of its own. Names are no part of a version's digest.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace

from failsoft.config.settings import Settings
from failsoft.config.versions import VersionSettings, find_version
from failsoft.errors import PinError
from failsoft.fallback.pins.history import file_pins
from failsoft.fallback.pins.pinned import is_same_version, pinned_version, settings_of
from failsoft.pin_records import Pin, PinnedVersion

_NAME_CHARS = 51
_HASH_CHARS = 12


def effective(settings: Settings, pinned: Mapping[str, PinnedVersion]) -> Settings:
    """Return *settings* with these slots pinned to these versions.

    Args:
        settings: The file's, paths absolute.
        pinned: By slot; slots that the file does not pin are left out.

    Raises:
        PinError: A version's table is written in a way that this failsoft cannot read.
    """
    versions, pins = dict(settings.versions), dict(settings.pins)
    for slot, version in sorted(pinned.items()):
        if slot in pins:
            pins[slot] = _put(slot, version, versions)
    return replace(settings, versions=versions, pins=pins)


def _put(slot: str, version: PinnedVersion, versions: dict[str, VersionSettings]) -> str:
    """Have *versions* hold *version*; return the name under which they do."""
    table = settings_of(version)
    if table is None:
        raise PinError(
            f"pin {slot}: the settings kept of version {version.name} cannot be read by this "
            "failsoft; run the one that pinned it, or a newer one",
            slot=slot,
        )
    known = find_version(version.name, versions)
    if known is None:
        versions[version.name] = table
        return version.name
    if replace(known, price=None) == replace(table, price=None):
        return version.name
    told = hashlib.sha256(version.settings_json.encode()).hexdigest()[:_HASH_CHARS]
    name = f"{version.name[:_NAME_CHARS]}.{told}"
    versions[name] = table
    return name


class Standing:
    """What holds now; one event loop owns it.

    Args:
        settings: The file's, paths absolute.
    """

    def __init__(self, settings: Settings) -> None:
        self.file = settings
        self._moved: dict[str, PinnedVersion] = {}
        self._held: dict[str, PinnedVersion] = {}

    @property
    def moved(self) -> Mapping[str, PinnedVersion]:
        """The version of each slot that was ever moved."""
        return self._moved

    def settings(self) -> Settings:
        """Return what children are to run by.

        Raises:
            PinError: A pinned version's table cannot be read.
        """
        return self.settings_for(self.file)

    def settings_for(self, file: Settings) -> Settings:
        """Return the same, were *file* the settings file's.

        Raises:
            PinError: A pinned version's table cannot be read.
        """
        return effective(file, self._moved | self._held)

    def settings_with(self, slot: str, target: PinnedVersion) -> Settings:
        """Return what an engine on trial for *slot* is to run by: all the same but for its slot.

        Raises:
            PinError: A pinned version's table cannot be read.
        """
        return effective(self.file, self._moved | self._held | {slot: target})

    def version(self, slot: str) -> PinnedVersion | None:
        """Return what *slot* is to run; None when the file does not pin it."""
        if slot not in self.file.pins:
            return None
        known = self._held.get(slot) or self._moved.get(slot)
        return known or pinned_version(self.file.pins[slot], self.file.versions)

    def file_versions(self) -> dict[str, PinnedVersion]:
        """Return what the settings file alone pins, by slot."""
        return file_pins(self.file)

    @property
    def unlike_file(self) -> list[str]:
        """The slots that a move has pinned to something else than the settings file says."""
        said = file_pins(self.file)
        return [
            slot
            for slot, version in self._moved.items()
            if slot in said and not is_same_version(version, said[slot])
        ]

    def hold(self, slot: str, version: PinnedVersion) -> None:
        """Have *slot* run *version*, whatever file and store say, until `let_go`."""
        self._held[slot] = version

    def let_go(self, slot: str) -> None:
        """Have *slot* go by store and file again."""
        self._held.pop(slot, None)

    def pin(self, slot: str, version: PinnedVersion) -> None:
        """Take in that a move pinned *slot*."""
        self._moved[slot] = version

    def take_pins(self, pins: Iterable[Pin]) -> None:
        """Take in what the store says."""
        self._moved = {pin.slot: pin.version for pin in pins if pin.is_moved}

    def take_moved(self, moved: Mapping[str, PinnedVersion]) -> None:
        """Take in what was known when the store could last be read."""
        self._moved = dict(moved)
