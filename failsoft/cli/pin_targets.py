"""What a command's words for a slot and a version stand for."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from failsoft.cli.pin_place import PinPlace
from failsoft.config.settings import CACHE_RUNG, Settings
from failsoft.config.tables import did_you_mean
from failsoft.config.versions import version_names
from failsoft.errors import ConfigError, PinError
from failsoft.fallback.pins.history import held_versions, rollback_target
from failsoft.fallback.pins.pinned import is_same_version, pinned_version
from failsoft.fallback.pins.words import version_words
from failsoft.pin_records import PinMove, PinnedVersion
from failsoft.store.rows import one_line

if TYPE_CHECKING:
    from failsoft.store.store import Store

MIN_DIGEST_CHARS = 4
_DIGEST_HEAD = re.compile(rf"[0-9a-f]{{{MIN_DIGEST_CHARS},64}}")


def check_slot(slot: str, place: PinPlace) -> None:
    """Refuse a slot that no engine serves.

    Raises:
        ConfigError: No ladder uses it.
    """
    used = place.used_slots()
    if slot not in used:
        allowed = f"no ladder uses such a slot; {did_you_mean(slot, used)}"
        raise ConfigError(key="SLOT", value=slot, allowed=allowed)


def check_shown_slot(slot: str | None, known: Sequence[str]) -> None:
    """Refuse a slot that nothing is known of; None stands for all.

    Raises:
        ConfigError: Neither the settings nor the store name it.
    """
    if slot is not None and slot not in known:
        allowed = f"no such slot; {did_you_mean(slot, known)}"
        raise ConfigError(key="SLOT", value=slot, allowed=allowed)


def check_abortable(slot: str, place: PinPlace, store: "Store") -> None:
    """Refuse to take back what is not there, and say so of a slot or a home that is not either.

    Raises:
        ConfigError: Neither the settings nor the store name the slot.
        PinError: No move of it is under way.
    """
    if store.pins.open_move(slot) is not None:
        return
    known = {*place.used_slots(), *place.settings.pins, *store.pins.pins()}
    check_shown_slot(slot, sorted(known))
    where = "" if place.supervisor is not None else f"; {place.nobody_runs}"
    raise PinError(f"no move of pin {slot} is under way{where}", slot=slot)


def covers_meanwhile(slot: str, settings: Settings) -> list[str]:
    """Return who answers each ladder of *slot* while no engine serves it, a line for each.

    Only the settings are asked: whether those rungs can answer is not known here.
    """
    lines = []
    for name, ladder in settings.ladders.items():
        models = {rung: settings.endpoints[rung].pin for rung in ladder.rungs if rung != CACHE_RUNG}
        if slot not in models.values():
            continue
        others = [rung for rung, pin in models.items() if pin != slot]
        if others:
            who = f"is answered by {', '.join(others)}, or not at all where they cannot"
        elif CACHE_RUNG in ladder.rungs:
            who = "has kept replies only, and all other calls FAIL"
        else:
            who = "has nothing else, and all its calls FAIL"
        lines.append(f"until the new engine serves, ladder {name} {who}")
    return lines


def check_why(why: str) -> str:
    """Return the reason as one line.

    Raises:
        ConfigError: Nothing is left.
    """
    line = one_line(why)
    if not line:
        raise ConfigError(
            key="--why", value=why, allowed="a reason in a few words; the history keeps it"
        )
    return line


def version_to_set(name: str, place: PinPlace) -> PinnedVersion:
    """Return what the settings mean by *name*.

    Raises:
        ConfigError: Nothing.
    """
    version = pinned_version(name, place.settings.versions)
    if version is None:
        known = version_names(place.settings.versions)
        broken = "" if place.trouble is None else f" (the file cannot be read: {place.trouble})"
        allowed = f"no such version or catalogue model{broken}; {did_you_mean(name, known)}"
        if _DIGEST_HEAD.fullmatch(name.lower()):
            allowed += "; a digest names what held the slot: `failsoft rollback SLOT --to DIGEST`"
        raise ConfigError(key="VERSION", value=name, allowed=allowed)
    return version


def version_to_go_back_to(
    slot: str, wanted: str | None, moves: Sequence[PinMove], *, now: PinnedVersion | None
) -> PinnedVersion:
    """Return which version of a slot's history a rollback goes to.

    Args:
        slot: The slot.
        wanted: A name, or the beginning of a digest; None takes what was there before.
        moves: The slot's history.
        now: What is pinned; it is meant only where nothing else is.

    Raises:
        PinError: Nothing was there before.
        ConfigError: *wanted* stands for nothing in the history, or for several versions.
    """
    if wanted is None:
        before = rollback_target(moves)
        if before is None:
            raise PinError(
                f"pin {slot}: nothing was pinned before what is pinned now; name a version with "
                f"--to, or bring another one with `failsoft pin set {slot} VERSION --why TEXT`",
                slot=slot,
            )
        return before
    held = _with_pinned(held_versions(moves), now)
    meant = [version for version in held if _is_meant(version, wanted)]
    others = [v for v in meant if now is None or not is_same_version(v, now)]
    found = others or meant
    if len(found) == 1:
        return found[0]
    raise ConfigError(key="--to", value=wanted, allowed=_choice(found, held))


def _with_pinned(held: Sequence[PinnedVersion], now: PinnedVersion | None) -> list[PinnedVersion]:
    """Return *held* with what is pinned now in front: its digest may have been learnt since."""
    if now is None:
        return list(held)
    return [now, *(version for version in held if not is_same_version(version, now))]


def _is_meant(version: PinnedVersion, wanted: str) -> bool:
    if version.name == wanted:
        return True
    is_long = len(wanted) >= MIN_DIGEST_CHARS
    return is_long and version.digest is not None and version.digest.startswith(wanted.lower())


def _choice(found: Sequence[PinnedVersion], held: Sequence[PinnedVersion]) -> str:
    if found:
        several = ", ".join(version_words(version) for version in found)
        return f"it stands for several versions: {several}; give more of the digest"
    known = ", ".join(version_words(version) for version in held) or "none"
    return (
        "a version that held this slot before, by its name or at least "
        f"{MIN_DIGEST_CHARS} digits of its digest; known: {known}; any other one comes with "
        "`failsoft pin set`"
    )
