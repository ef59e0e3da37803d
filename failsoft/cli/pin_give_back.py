"""``failsoft pin follow-file``: a slot that was moved goes by its settings file again.

Only from where it is: the file, and what a running `failsoft up` has read of it, must say what is
pinned, so that giving a slot back starts and stops nothing.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from failsoft.cli.pin_place import PinPlace
from failsoft.errors import ConfigError, PinError
from failsoft.fallback.pins.history import file_pins
from failsoft.fallback.pins.pinned import is_same_version
from failsoft.fallback.pins.words import digest_head, version_words
from failsoft.pin_records import Pin, PinnedVersion

if TYPE_CHECKING:
    from failsoft.store.store import Store


def give_back(place: PinPlace, store: "Store", slot: str, *, who: str, why: str) -> None:
    """Have *slot* follow the settings file again, and say so.

    Raises:
        ConfigError: The file cannot be read, is not the one that runs, or does not pin the slot.
        PinError: The file says something else, or `failsoft up` has not read it yet.
        PinConflictError: A move of the slot is under way.
        StoreError: The store refused.
    """
    said = _said(place, slot)
    pin = store.pins.pins().get(slot)
    if pin is None or not pin.is_moved:
        typer.echo(f"pin {slot} follows {place.path} already; nothing to give back")
        return
    _check_same(place, pin, said)
    if place.supervisor is not None and slot in place.supervisor.unlike_file:
        raise PinError(
            f"pin {slot}: `failsoft up` has not read {place.path} since it says {said.name}; "
            f"`kill -HUP {place.supervisor.pid}`, then ask again",
            slot=slot,
        )
    _forget(place, slot)
    version = replace(said, digest=pin.version.digest)
    store.pins.follow_file(slot, version, who=who, why=why, seen=pin)
    typer.echo(
        f"pin {slot} follows {place.path} again, which says {version_words(version)}: its next "
        f"change there counts{_when(place)}"
    )


def _said(place: PinPlace, slot: str) -> PinnedVersion:
    """Return what the file pins *slot* to.

    Raises:
        ConfigError: Nothing, or the file is broken, or another one than runs.
    """
    if place.trouble is not None:
        raise ConfigError(key="--config", value=str(place.path), allowed=place.trouble)
    runs_by = None if place.supervisor is None else Path(place.supervisor.settings)
    if runs_by is not None and runs_by.resolve() != place.path.resolve():
        allowed = f"{runs_by}, which `failsoft up` runs by"
        raise ConfigError(key="--config", value=str(place.path), allowed=allowed)
    said = file_pins(place.settings).get(slot)
    if said is None:
        raise ConfigError(key="SLOT", value=slot, allowed=f"a slot that {place.path} pins")
    return said


def _check_same(place: PinPlace, pin: Pin, said: PinnedVersion) -> None:
    """Refuse to give back a slot that the file would move.

    Raises:
        PinError: It says another version, or its bytes are others by now.
    """
    slot, now = pin.slot, version_words(pin.version)
    if not is_same_version(pin.version, said):
        means = "means another by it" if said.name == pin.version.name else f"says {said.name}"
        keep = ""
        if said.name != pin.version.name:
            keep = f" (`failsoft pin write` puts {pin.version.name} there)"
        raise PinError(
            f"pin {slot}: {now} is pinned, {place.path} {means}; have both say the same first: "
            f"change the file{keep}, or move with `failsoft pin set {slot} {said.name} --why TEXT`",
            slot=slot,
        )
    found = _digest(place, said.name)
    if None not in (found, pin.version.digest) and found != pin.version.digest:
        raise PinError(
            f"pin {slot}: {now} is pinned, the files of {said.name} have become "
            f"{digest_head(found)}; move there with `failsoft pin set {slot} {said.name} --why "
            "TEXT` first",
            slot=slot,
        )


def _digest(place: PinPlace, name: str) -> str | None:
    """Return the digest of what is stored for a version of the file; None where nothing tells."""
    from failsoft.engine.models.store import ModelStore
    from failsoft.engine.models.version_facts import version_facts

    facts = version_facts(name, config_path=place.path, store=ModelStore(place.home))
    return None if facts.version is None else facts.version.digest


def _forget(place: PinPlace, slot: str) -> None:
    """Have a start without the store go by the file: before the store says so, never after.

    Raises:
        ConfigError: What is known beside the store cannot be written.
    """
    from failsoft.serving.supervisor.moves.known_pins import forget_pin

    try:
        forget_pin(place.home, place.store_config.url, slot)
    except OSError as exc:
        allowed = f"a folder that this user may write to ({exc.strerror})"
        raise ConfigError(key="FAILSOFT_HOME", value=str(place.home), allowed=allowed) from exc


def _when(place: PinPlace) -> str:
    if place.supervisor is None:
        return ""
    return f" once `failsoft up` reads it (`kill -HUP {place.supervisor.pid}`)"
