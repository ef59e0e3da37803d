"""The moved pins as they were last known, in a file beside the store that has them.

A `failsoft up` whose store cannot be opened must not go back to what the settings file says
after a move decided otherwise.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from failsoft.config.run_files import is_private, write_private_json
from failsoft.pin_records import PinnedVersion

SCHEMA = 1


def _path(home: Path) -> Path:
    return home / "moved_pins.json"


def note_pins(home: Path, store_url: str, moved: Mapping[str, PinnedVersion]) -> None:
    """Write what is known now; nothing where nothing was ever moved.

    Args:
        home: failsoft's folder.
        store_url: Which store says so: another one has moves of its own.
        moved: By slot.

    Raises:
        OSError: It cannot be written.
    """
    if not moved and not _path(home).exists():
        return
    pins = {slot: asdict(version) for slot, version in moved.items()}
    write_private_json(_path(home), {"schema": SCHEMA, "store": store_url, "pins": pins})


def forget_pin(home: Path, store_url: str, slot: str) -> None:
    """Take *slot* out of what is known, so that a start without the store goes by the file.

    Raises:
        OSError: It cannot be written.
    """
    known = last_known_pins(home, store_url)
    if known is not None and slot in known:
        note_pins(home, store_url, {name: known[name] for name in known if name != slot})


def last_known_pins(home: Path, store_url: str) -> dict[str, PinnedVersion] | None:
    """Return the moved pins by slot; None when none are known of this store."""
    path = _path(home)
    try:
        if not is_private(path.stat()):
            return None
        raw = json.loads(path.read_text(encoding="utf-8"))
        if (raw["schema"], raw["store"]) != (SCHEMA, store_url):
            return None
        return {slot: PinnedVersion(**version) for slot, version in raw["pins"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
