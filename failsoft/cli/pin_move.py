"""Asks for a move as `failsoft pin set` and `failsoft rollback` do, once nothing speaks against it.

What can be seen here is refused at once; `failsoft up` looks at all of it again.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from failsoft.cli.pin_back import tell_back
from failsoft.cli.pin_follow import tell
from failsoft.cli.pin_leave import follow_asked, leave_switched
from failsoft.cli.pin_place import PinPlace, find_place, operator
from failsoft.cli.pin_targets import check_slot, check_why
from failsoft.errors import PinError
from failsoft.fallback.pins.evidence import judge_evidence
from failsoft.fallback.pins.history import as_confirmed, was_confirmed, went_back_by_itself
from failsoft.fallback.pins.pinned import is_same_version, pinned_version
from failsoft.fallback.pins.words import end_words, version_words
from failsoft.pin_records import MoveAsk, MoveKind, PinMove, PinnedVersion, Swap
from failsoft.store.rows import one_line

if TYPE_CHECKING:
    from failsoft.store.store import Store

Choose = Callable[[PinPlace, Sequence[PinMove], PinnedVersion | None], PinnedVersion]
"""Picks the target: out of the settings, or the slot's history and what is pinned now."""

_LATELY_S = 3600.0
"""How long after a move failed by itself a rollback is taken for one of that move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveWish:
    """What an operator asks, before it is known what it stands for."""

    slot: str
    kind: MoveKind
    who: str | None
    """None takes who runs the command."""
    why: str
    swap: Swap
    accept_unproven: bool
    names_target: bool = True
    """Whether it says where to go; else that is the version before."""


def move_pin(wish: MoveWish, choose: Choose, *, waits: bool) -> None:
    """Ask for the move, and follow it to its end if *waits*.

    Raises:
        PinError: It is refused, or was not confirmed.
        PinConflictError: Another one of the slot is under way.
        ConfigError: No reason is given, or it names what does not exist.
    """
    why, place = check_why(wish.why), find_place(None)
    check_slot(wish.slot, place)
    place.require_supervisor(wish.slot)
    if place.trouble is not None:
        typer.echo(f"warning: {place.trouble}; going by what runs", err=True)
    with place.open_store() as store:
        first = _switched_move(wish, store)
        moves = store.pins.history(wish.slot)
        now = _pinned_now(wish.slot, store, place)
        if first is not None:  # what it left is where to go, whatever becomes of it
            moves, now = as_confirmed(moves, first), first.to
        elif now is not None and (failed := _failed_lately(wish, now, moves)) is not None:
            _tell_failed(failed)
            tell_back(store, wish.slot, now, place=place, waits=waits)
            return
        target = choose(place, moves, now)
        if now is not None and is_same_version(now, target):
            _tell_there_already(wish, first, now)
            return
        _check_evidence(store, wish, target, now, moves)
        ask = MoveAsk(
            slot=wish.slot,
            kind=wish.kind,
            to=target,
            who=one_line(wish.who or "") or operator(),
            why=why,
            swap=wish.swap,
            accept_unproven=wish.accept_unproven,
        )
        if first is None or not leave_switched(store, first, ask, place=place, waits=waits):
            follow_asked(store, store.pins.ask(ask), place=place, waits=waits)


def _switched_move(wish: MoveWish, store: "Store") -> PinMove | None:
    """Return the move under way that the wished rollback is to leave; None where none is.

    Raises:
        PinConflictError: One is, and it cannot be left so.
    """
    from failsoft.store.pin_statements import conflict_with

    move = store.pins.open_move(wish.slot)
    if move is None:
        return None
    # What a rollback left is the bad version: nobody goes there without saying so.
    is_clear = wish.names_target or not move.kind.goes_back
    if not (wish.kind.goes_back and move.state.is_switched and is_clear):
        raise conflict_with(move)
    return move


def _failed_lately(wish: MoveWish, now: PinnedVersion, moves: Sequence[PinMove]) -> PinMove | None:
    """Return the move whose end came just before the wished rollback of it; None if none did.

    The stack of a slot knows nothing of it, so a rollback would go one version too far.
    """
    if not wish.kind.goes_back or wish.names_target:
        return None
    failed = went_back_by_itself(moves)
    if failed is None or failed.ended_at_ms is None or failed.left is None:
        return None
    if not is_same_version(now, failed.left):
        return None
    return failed if time.time() * 1000 - failed.ended_at_ms < _LATELY_S * 1000 else None


def _tell_failed(failed: PinMove) -> None:
    tell(
        f"pin {failed.slot}: the move to {version_words(failed.to)} {end_words(failed)}; to leave "
        f"what it went back to as well, `failsoft rollback {failed.slot} --to VERSION --why TEXT`"
    )


def _tell_there_already(wish: MoveWish, first: PinMove | None, now: PinnedVersion) -> None:
    """Say that there is nothing to move.

    Raises:
        PinConflictError: *first* has not shown yet that this is so.
    """
    from failsoft.store.pin_statements import conflict_with

    if first is not None:
        raise conflict_with(first)
    typer.echo(f"pin {wish.slot} is at {version_words(now)} already; nothing to move")


def _pinned_now(slot: str, store: "Store", place: PinPlace) -> PinnedVersion | None:
    pin = store.pins.pins().get(slot)
    if pin is not None:
        return pin.version
    name = place.settings.pins.get(slot)
    return None if name is None else pinned_version(name, place.settings.versions)


def _check_evidence(
    store: "Store",
    wish: MoveWish,
    target: PinnedVersion,
    now: PinnedVersion | None,
    moves: Sequence[PinMove],
) -> None:
    """Refuse a target that nothing speaks for, where its digest is known here.

    Raises:
        PinError: It has not shown that it may take the slot.
    """
    known = target if target.digest is not None else _seen_before(target, moves)
    if known is None or known.digest is None:
        return  # only its files tell; `failsoft up` reads them
    pinned = None if now is None else now.digest
    evidence = judge_evidence(
        kind=wish.kind,
        target=store.eval_scores.newest(known.digest),
        pinned={} if pinned is None else store.eval_scores.newest(pinned),
        was_confirmed=was_confirmed(moves, known),
        accept_unproven=wish.accept_unproven,
    )
    if not evidence.is_enough:
        raise PinError(
            f"pin {wish.slot}: {version_words(known)} is unproven: {evidence.words}; to take it "
            "all the same: --accept-unproven, which the history keeps",
            slot=wish.slot,
        )


def _seen_before(target: PinnedVersion, moves: Sequence[PinMove]) -> PinnedVersion | None:
    """Return *target* as the last move to it had it, which may have failed: with its digest."""
    return next((move.to for move in moves if is_same_version(move.to, target)), None)
