"""A version's table into what a pin keeps of it, and back.

A pin keeps the whole table, so that a version which the settings dropped, or changed under its
name, can be run again.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from failsoft.config.tables import Problems
from failsoft.config.versions import VersionSettings, find_version, read_versions
from failsoft.pin_records import PinnedVersion


def pinned_version(
    name: str, versions: Mapping[str, VersionSettings], *, digest: str | None = None
) -> PinnedVersion | None:
    """Return the version called *name* as a pin keeps it; None when nothing is called so.

    Args:
        name: A table's, or a catalogue model's.
        versions: The settings' tables, their paths absolute.
        digest: Of its manifest, where it is known.
    """
    version = find_version(name, versions)
    if version is None:
        return None
    return PinnedVersion(name=name, settings_json=_as_json(version), digest=digest)


def table_of(version: PinnedVersion) -> dict[str, Any]:
    """Return the table that *version* keeps as a file would have it; empty where it is none."""
    try:
        table = json.loads(version.settings_json)
    except ValueError:
        return {}
    return table if isinstance(table, dict) else {}


def settings_of(version: PinnedVersion) -> VersionSettings | None:
    """Return the table that *version* keeps; None when this failsoft cannot read it."""
    return read_versions({version.name: table_of(version)}, Problems()).get(version.name)


def is_same_version(one: PinnedVersion, other: PinnedVersion) -> bool:
    """Return whether both give the same answers: by their digests, else by what they say.

    A price changes no answer.
    """
    if one.digest is not None and other.digest is not None:
        return one.digest == other.digest
    return one.name == other.name and _meaning(one) == _meaning(other)


def _meaning(version: PinnedVersion) -> str:
    said = settings_of(version)
    return version.settings_json if said is None else _as_json(replace(said, price=None))


def _as_json(version: VersionSettings) -> str:
    """Return one text for equal tables; only what is set, as a file would have it."""
    return json.dumps(_set_only(asdict(version)), sort_keys=True)


def _set_only(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _set_only(value) if isinstance(value, Mapping) else value
        for key, value in table.items()
        if value not in (None, ())
    }
