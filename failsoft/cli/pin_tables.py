"""Pins and moves as lines for people and as JSON documents."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import typer

from failsoft.cli.pin_place import PinPlace
from failsoft.fallback.discovery import IN_HAND, EngineFinder, RunningEngine
from failsoft.fallback.pins.history import pin_differences, rollback_target, stamp
from failsoft.fallback.pins.pinned import is_same_version, pinned_version
from failsoft.fallback.pins.words import (
    digest_head,
    end_words,
    kind_words,
    progress_words,
    proof_words,
    read_proof,
    rollback_words,
    version_words,
)
from failsoft.pin_records import MoveKind, Pin, PinMove, PinnedVersion, WantedRollback

if TYPE_CHECKING:
    from failsoft.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class PinLook:
    """One slot as it stands."""

    slot: str
    version: PinnedVersion | None
    """What is pinned; None where neither file nor store say."""
    pin: Pin | None
    """As the store has it; None before a `failsoft up` noted it."""
    behind: PinMove | None
    """The move that put it there."""
    under_way: PinMove | None
    is_left_alone: bool
    """Whether *under_way* is for the `failsoft up` of this folder, and that does not run."""
    difference: str | None
    """Where the settings file says something else."""
    can_follow: bool
    """Whether it was moved, to what the settings file says by now."""
    back_to: PinnedVersion | None
    """Where a rollback goes that names no version."""
    engine: RunningEngine | str
    """What runs, or why nothing does."""
    at_ms: int

    @property
    def runs_another(self) -> bool:
        """Whether what runs reports another version than the pin's."""
        pinned = None if self.version is None else self.version.digest
        running = None if isinstance(self.engine, str) else self.engine.version_digest
        return pinned is not None and running is not None and pinned != running


def known_slots(place: PinPlace, store: "Store") -> list[str]:
    """Return the slots that the settings or the store name."""
    running = {} if place.running is None else place.running.pins
    return list(dict.fromkeys([*place.settings.pins, *running, *store.pins.pins()]))


def look_at_pins(place: PinPlace, store: "Store") -> list[PinLook]:
    """Return how each slot stands.

    Raises:
        StoreError: The store cannot be read.
    """
    pins, finder = store.pins.pins(), EngineFinder(place.home)
    at_ms = int(time.time() * 1000)
    looks = []
    for slot in known_slots(place, store):
        under_way = store.pins.open_move(slot)
        pin, moves = pins.get(slot), store.pins.history(slot)
        behind = next((m for m in moves if pin is not None and m.move_id == pin.move_id), None)
        lines = pin_differences(
            place.settings, {} if pin is None else {slot: pin}, {m.move_id: m for m in moves}
        )
        looks.append(
            PinLook(
                slot=slot,
                version=_version(slot, pin, place),
                pin=pin,
                behind=behind,
                under_way=under_way,
                is_left_alone=under_way is not None and place.leaves_alone(under_way),
                difference=next(iter(lines), None),
                can_follow=pin is not None
                and pin.is_moved
                and slot in place.settings.pins
                and not lines,
                back_to=rollback_target(moves),
                engine=_engine(place, slot, finder),
                at_ms=at_ms,
            )
        )
    return looks


def _engine(place: PinPlace, slot: str, finder: EngineFinder) -> RunningEngine | str:
    """Return what runs at *slot*; where `failsoft up` has it in hand, what that says of it."""
    found = finder.find(slot)
    children = () if place.supervisor is None else place.supervisor.children
    child = next((child for child in children if child.name == slot), None)
    if isinstance(found, RunningEngine):
        return found
    if place.supervisor is None:
        return f"{found}; {place.nobody_runs}"
    if child is None:
        return found
    ended = "" if child.last_exit is None else f"; it ended before: {child.last_exit}"
    how = IN_HAND[child.phase]
    return f"its engine {how} (`failsoft status`){ended}"


def _version(slot: str, pin: Pin | None, place: PinPlace) -> PinnedVersion | None:
    if pin is not None:
        return pin.version
    name = place.settings.pins.get(slot)
    return None if name is None else pinned_version(name, place.settings.versions)


# JSON.


def pin_document(look: PinLook) -> dict[str, Any]:
    """Return a slot as JSON values."""
    engine = look.engine
    return {
        "slot": look.slot,
        "version": None if look.version is None else _version_document(look.version),
        "is_moved": look.pin is not None and look.pin.is_moved,
        "since_ms": None if look.pin is None else look.pin.since_ms,
        "by_move": None if look.behind is None else move_document(look.behind),
        "under_way": None if look.under_way is None else move_document(look.under_way),
        "differs_from_file": look.difference,
        "rollback_to": None if look.back_to is None else _version_document(look.back_to),
        "running": None
        if isinstance(engine, str)
        else {"pid": engine.pid, "name": engine.version, "digest": engine.version_digest},
        "why_not_running": engine if isinstance(engine, str) else None,
    }


def move_document(move: PinMove) -> dict[str, Any]:
    """Return a move as JSON values."""
    document = asdict(move)
    del document["proof_json"]
    return {
        **document,
        "left": None if move.left is None else _version_document(move.left),
        "to": _version_document(move.to),
        "proof": read_proof(move),
        "rollback": None if move.rollback is None else _rollback_document(move.rollback),
    }


def _rollback_document(wanted: WantedRollback) -> dict[str, Any]:
    """Return what is to follow a move as JSON values."""
    document = asdict(wanted.ask)
    return {**document, "to": _version_document(wanted.ask.to), "move_id": wanted.move_id}


def _version_document(version: PinnedVersion) -> dict[str, Any]:
    return {
        "name": version.name,
        "digest": version.digest,
        "settings": json.loads(version.settings_json),
    }


# Lines.


def print_pins(looks: Sequence[PinLook]) -> None:
    """Print how slots stand."""
    for number, look in enumerate(looks):
        if number:
            typer.echo()
        typer.echo(f"{look.slot}: {version_words(look.version)}")
        for line in _lines(look):
            typer.echo(f"  {line}")
    if not looks:
        typer.echo("no slot is pinned: the settings have no [pins]")


def _lines(look: PinLook) -> Iterator[str]:
    if look.pin is None:
        yield "by the settings file; no `failsoft up` has noted it in the store yet"
    else:
        yield f"since {stamp(look.pin.since_ms)}{_by(look.behind)}"
    if look.behind is not None:
        yield from (f"proof: {line}" for line in proof_words(look.behind))
    yield f"runs: {_running(look)}"
    if look.under_way is not None:
        yield f"MOVE UNDER WAY: {progress_words(look.under_way, now_ms=look.at_ms)}"
        if look.is_left_alone:
            yield "  but nobody carries it out: start `failsoft up`, which ends or undoes it"
    if look.difference is not None:
        yield f"DIFFERS FROM THE FILE: {look.difference}"
    if look.can_follow:
        yield (
            "goes by its moves, not by the file, which says the same; to have it follow the file "
            f"again: `failsoft pin follow-file {look.slot} --why TEXT`"
        )
    if look.back_to is not None:
        yield f"`failsoft rollback {look.slot} --why TEXT` goes to {version_words(look.back_to)}"


def _by(move: PinMove | None) -> str:
    if move is None:
        return ""
    if move.kind is MoveKind.FILE:
        return ", by the settings file"
    if move.kind is MoveKind.FOLLOW_FILE:
        when = stamp(move.asked_at_ms)
        return f"; {kind_words(move.kind)} since {when}, by {move.who}: {move.why}"
    if move.ended_at_ms is None:  # it has switched, and is not confirmed yet
        return f", by the move under way ({move.who})"
    return f", {kind_words(move.kind)} by {move.who}: {move.why}"


def _running(look: PinLook) -> str:
    engine = look.engine
    if isinstance(engine, str):
        return f"nothing: {engine}"
    what = f"process {engine.pid}, version {digest_head(engine.version_digest)}"
    if look.runs_another:
        return f"{what}, WHICH IS NOT THE PINNED ONE"
    return what


def print_history(moves: Sequence[PinMove], pins: Mapping[str, Pin], *, store_url: str) -> None:
    """Print moves, the newest first.

    Args:
        moves: They.
        pins: What each slot is pinned to now.
        store_url: Where they are kept, which is said where there are none.
    """
    for move, to in _with_learnt_digests(moves, pins):
        stays = move.kind is MoveKind.FOLLOW_FILE
        path = version_words(to) if stays else f"{version_words(move.left)} -> {version_words(to)}"
        typer.echo(f"{stamp(move.asked_at_ms)}  {move.slot}  {kind_words(move.kind)}  {path}")
        if move.kind is not MoveKind.FILE:
            typer.echo(f"  by {move.who}: {move.why}")
        if not move.kind.is_by_file:  # those are noted, not carried out
            typer.echo(f"  {end_words(move)}{_taken(move)}")
        if move.rollback is not None:
            typer.echo(f"  {rollback_words(move.rollback)}")
    if not moves:
        typer.echo(f"no pin was ever noted or moved in the store {store_url}")


def _with_learnt_digests(
    moves: Sequence[PinMove], pins: Mapping[str, Pin]
) -> Iterator[tuple[PinMove, PinnedVersion]]:
    """Yield each of *moves* (newest first) with its target, its digest as it was learnt since.

    The settings file names a version before anybody has read its bytes; what the next move of
    the slot left, or what is pinned now, is the same version with its digest.
    """
    after = {slot: pin.version for slot, pin in pins.items()}
    for move in moves:
        later, to = after.get(move.slot), move.to
        is_file = move.kind is MoveKind.FILE
        if is_file and to.digest is None and later is not None and is_same_version(later, to):
            to = later
        yield move, to
        if move.left is not None:
            after[move.slot] = move.left


def _taken(move: PinMove) -> str:
    if not move.accept_unproven:
        return ""
    evidence = (read_proof(move) or {}).get("evidence")
    if isinstance(evidence, dict) and not evidence.get("accepted"):
        return " (--accept-unproven was given and not needed)"
    return " (unproven versions were accepted)"
