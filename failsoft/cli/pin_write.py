"""``failsoft pin write``: the settings file is told what moves decided."""

from collections.abc import Mapping

import typer

from failsoft.cli.pin_place import PinPlace
from failsoft.config.pin_file import write_pins
from failsoft.config.schema import BUILT_IN_FILE
from failsoft.config.show import as_toml
from failsoft.errors import ConfigError
from failsoft.fallback.pins.pinned import is_same_version, pinned_version, table_of
from failsoft.pin_records import Pin


def write_moved_pins(place: PinPlace, pins: Mapping[str, Pin]) -> bool:
    """Write what can be written and say so; return whether that was all.

    A version that the file does not name, or that it means another one by, cannot be pinned
    there by its name alone: its table is printed instead.

    Raises:
        ConfigError: The file cannot be read or written.
    """
    if place.trouble is not None:
        raise ConfigError(key="--config", value=str(place.path), allowed=place.trouble)
    moved = {slot: pins[slot] for slot in place.settings.pins if _is_moved(pins.get(slot))}
    named, unnamed = {}, []
    for slot, pin in moved.items():
        said = pinned_version(pin.version.name, place.settings.versions)
        if said is not None and is_same_version(said, pin.version):
            named[slot] = pin.version.name
        else:
            unnamed.append(pin)
    _write(place, named, is_all=not unnamed)
    for slot in named:
        _tell_how_to_follow(place, slot)
    for pin in unnamed:
        _tell_unnamed(place, pin)
    return not unnamed


def _is_moved(pin: Pin | None) -> bool:
    return pin is not None and pin.is_moved


def _write(place: PinPlace, named: Mapping[str, str], *, is_all: bool) -> None:
    before = place.settings.pins
    changed = {slot: name for slot, name in named.items() if before[slot] != name}
    if not changed:
        if is_all:
            typer.echo(f"{place.path} says what is pinned already; nothing to write")
        return
    if place.path.resolve() == BUILT_IN_FILE.resolve():
        raise ConfigError(
            key="--config",
            value=str(place.path),
            allowed="a file of your own; these are the built-in settings, write a failsoft.toml "
            "and start `failsoft up` with it",
        )
    write_pins(place.path, changed)
    for slot, name in changed.items():
        typer.echo(f"{place.path}: pins.{slot} = {name} (it was {before[slot]})")


def _tell_how_to_follow(place: PinPlace, slot: str) -> None:
    """Say that the slot still goes by its moves, which who edits the file does not expect."""
    first = ""
    if place.supervisor is not None and slot in place.supervisor.unlike_file:
        first = f"`kill -HUP {place.supervisor.pid}`, then "
    typer.echo(
        f"pin {slot} goes by its moves still, later changes of the file do not count; to have it "
        f"follow the file again: {first}`failsoft pin follow-file {slot} --why TEXT`",
        err=True,
    )


def _tell_unnamed(place: PinPlace, pin: Pin) -> None:
    name = pin.version.name
    lines = as_toml({"versions": {name: table_of(pin.version)}})
    has_other = name in place.settings.versions
    why = "means another version by it" if has_other else "does not name it"
    typer.echo(
        f"pins.{pin.slot}: {name} is pinned, and {place.path} {why}; put this table there "
        f"{'under a name of its own ' if has_other else ''}first:\n\n{lines}",
        err=True,
    )
