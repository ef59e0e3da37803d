"""Follows what was asked, and a rollback that leaves a move which has switched and is not over.

The rollback is kept with that move (`PinStore.ask_rollback`): its end is the rollback's beginning,
whoever watches.
"""

from typing import TYPE_CHECKING

import typer

from failsoft.cli.pin_back import tell_back
from failsoft.cli.pin_follow import follow_to_end, tell, tell_end, tell_start
from failsoft.cli.pin_place import PinPlace
from failsoft.cli.pin_targets import covers_meanwhile
from failsoft.fallback.pins.pinned import is_same_version
from failsoft.fallback.pins.words import end_words, version_words
from failsoft.pin_records import MoveAsk, PinMove, Swap

if TYPE_CHECKING:
    from failsoft.store.store import Store


def follow_asked(store: "Store", move: PinMove, *, place: PinPlace, waits: bool) -> None:
    """Tell what was asked, and follow it to its end if *waits*.

    Raises:
        PinError: It was not confirmed.
    """
    tell_start(move)
    _warn_of_gap(move.slot, move.swap, place)
    if waits:
        tell_end(follow_to_end(store, move, home=place.home))
    else:
        typer.echo(f"asked; see it with `failsoft pin show {move.slot}`")


def _warn_of_gap(slot: str, swap: Swap, place: PinPlace) -> None:
    """Say who answers while no engine serves *slot*."""
    if swap == "stop-first":
        for line in covers_meanwhile(slot, place.running or place.settings):
            typer.echo(f"warning: {line} (`failsoft pin abort {slot}`)", err=True)


def leave_switched(
    store: "Store", first: PinMove, ask: MoveAsk, *, place: PinPlace, waits: bool
) -> bool:
    """Have *ask* follow *first* at once, and follow both if *waits*.

    Returns:
        False when *first* was over already and the pin is not where *ask* wants it.

    Raises:
        PinConflictError: Another rollback is to follow it.
        PinError: The rollback was not confirmed.
    """
    left = store.pins.ask_rollback(first, ask)
    if left is None:
        pin = store.pins.pins().get(ask.slot)
        if pin is None or not is_same_version(pin.version, ask.to):
            return False
        tell_back(store, ask.slot, ask.to, place=place, waits=waits)
        return True
    tell(
        f"pin {left.slot}: {left.who} moved it to {version_words(left.to)}, which has switched and "
        "is not over; that is not waited for"
    )
    if left.owner is not None and not place.may_carry_out(left):
        tell(
            f"that move belongs to {left.owner}; where that is gone for good, `failsoft pin abort "
            f"{left.slot} --orphaned` ends it"
        )
    if not waits:
        _warn_of_gap(ask.slot, ask.swap, place)
        typer.echo(f"asked; see it with `failsoft pin show {left.slot}`")
        return True
    ended = follow_to_end(store, left, home=place.home, is_left=True)
    tell(f"pin {left.slot}: the move to {left.to.name}: {end_words(ended)}")
    became = None if ended.rollback is None else ended.rollback.move_id
    rollback = None if became is None else store.pins.move(became)
    if rollback is None:
        tell_back(store, ask.slot, ask.to, place=place, waits=True)
    else:
        follow_asked(store, rollback, place=place, waits=True)
    return True
