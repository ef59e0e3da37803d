"""Which pins need a stored model: a settings file's, and what the moves in a store left.

Of the settings file of this folder, and of what `failsoft up` runs by.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from failsoft.config.schema import DEFAULT_FILE, load_settings, settings_file
from failsoft.config.settings import StoreConfig
from failsoft.config.versions import parse_versions
from failsoft.run_state import accepted_settings, read_supervisor

if TYPE_CHECKING:
    from failsoft.engine.models.store import ModelStore
    from failsoft.pin_records import Pin, PinnedVersion
    from failsoft.store.pin_reader import PinReader


def pins_needing(digest: str, *, models: "ModelStore") -> list[str]:
    """Return, in words, each pin that could not be served, or gone back to, without a model.

    Args:
        digest: Of the stored model.
        models: Where it is, in failsoft's folder.

    Raises:
        ConfigError: A settings file is wrong.
        StoreError: The store of one cannot be read.
    """
    places = {"slot {} of failsoft.toml": DEFAULT_FILE} if DEFAULT_FILE.exists() else {}
    if read_supervisor(models.root) is not None:
        places["slot {} of the `failsoft up` that runs"] = accepted_settings(models.root)
    lines = [
        line for words, path in places.items() for line in _of_file(digest, path, words, models)
    ]
    stores = {load_settings(path).store: None for path in (settings_file(None), *places.values())}
    for config in stores:
        lines += _of_store(digest, config, models)
    return list(dict.fromkeys(lines))


def _of_file(digest: str, path: Path, words: str, models: "ModelStore") -> Iterator[str]:
    from failsoft.engine.models.inventory import find_name

    for slot, name in load_settings(path).pins.items():
        if find_name(name, store=models, config_path=path) == digest:
            yield f"{words.format(slot)} is {name}"


def _of_store(digest: str, config: StoreConfig, models: "ModelStore") -> list[str]:
    if config.is_sqlite and not Path(config.url.removeprefix("sqlite:///")).exists():
        return []  # opening it would make one
    from failsoft.store.store import Store

    with Store(config, environ=os.environ) as store:
        found = list(_of_moves(store.pins))
    return [words for words, version in found if _digest_of(version, models) == digest]


def _of_moves(pins: "PinReader") -> "Iterator[tuple[str, PinnedVersion]]":
    """Yield what moves made of each slot, what a rollback goes back to, and what is under way."""
    for slot, pin in pins.pins().items():
        if pin.is_moved:
            yield f"slot {slot} was moved to {pin.version.name}", pin.version
        for back in _ways_back(pins, pin):
            yield f"slot {slot} may be rolled back to {back.name}", back
    for move in pins.open_moves():
        for version in (move.left, move.to):
            if version is not None:
                yield f"slot {move.slot} moves to {move.to.name}", version


def _ways_back(pins: "PinReader", pin: "Pin") -> "Iterator[PinnedVersion]":
    """Yield what a rollback goes to, and what the slot ran before, which `--to` names."""
    from failsoft.fallback.pins.history import rollback_target
    from failsoft.fallback.pins.pinned import is_same_version

    move = pins.move(pin.move_id)
    left = None if move is None else move.left
    for back in (rollback_target(pins.history(pin.slot)), left):
        if back is not None and not is_same_version(back, pin.version):
            yield back


def _digest_of(version: "PinnedVersion", models: "ModelStore") -> str | None:
    from failsoft.engine.models.inventory import find_settings

    table = json.loads(version.settings_json)
    settings = parse_versions({"versions": {version.name: table}})[version.name]
    return find_settings(settings, base=Path.cwd(), store=models)
