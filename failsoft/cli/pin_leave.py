"""Follows what was asked, and a rollback that leaves a move which has switched and is not over.

The rollback is kept with that move (`PinStore.ask_rollback`): its end is the rollback's beginning,
whoever watches.
"""

import asyncio
import time
from typing import TYPE_CHECKING

import typer

from failsoft.cli.pin_follow import (
    GONE_S,
    POLL_S,
    follow_to_end,
    leaving_it_to_the_supervisor,
    tell,
    tell_end,
    tell_start,
)
from failsoft.cli.pin_place import PinPlace
from failsoft.cli.pin_targets import covers_meanwhile
from failsoft.errors import PinError, StoreError
from failsoft.fallback.discovery import EngineFinder, RunningEngine
from failsoft.fallback.pins.pinned import is_same_version
from failsoft.fallback.pins.words import digest_head, end_words, version_words
from failsoft.pin_records import MoveAsk, PinMove, PinnedVersion, Swap
from failsoft.run_state import SupervisorState, read_supervisor

if TYPE_CHECKING:
    from failsoft.store.store import Store

_ANSWER_S = 5.0
"""How long an engine may take to say what it runs, before it is asked again."""


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
        _tell_back(store, ask, place, waits=waits)
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
        _tell_back(store, ask, place, waits=True)
    else:
        follow_asked(store, rollback, place=place, waits=True)
    return True


def _tell_back(store: "Store", ask: MoveAsk, place: PinPlace, *, waits: bool) -> None:
    """Say that the pin went back by itself; if *waits*, once what runs has said so too.

    Raises:
        PinError: It does not run, and is not tried any more.
    """
    line = f"pin {ask.slot} went back to {version_words(ask.to)} by itself; nothing to move"
    if not waits:
        typer.echo(line)
        return
    tell(f"{line}; waiting for its engine …")
    with leaving_it_to_the_supervisor(ask.slot, can_abort=False):
        pid, digest = _wait_served(store, ask, place)
    tell(f"          process {pid} reported version {digest_head(digest)} of itself")
    typer.echo(f"pin {ask.slot} runs {version_words(ask.to)}: it went back by itself")


def _wait_served(store: "Store", ask: MoveAsk, place: PinPlace) -> tuple[int, str]:
    """Return who serves the slot, once that reports the digest that is pinned.

    Raises:
        PinError: Nobody does, and nobody is going to.
    """
    finder, gone_since_s = EngineFinder(place.home), None
    while True:
        # The pin's digest is noted once its engine has told it.
        expected = _pinned_version(store, ask).digest or ask.to.digest
        engine = finder.find(ask.slot)
        digest = _reported(engine) if isinstance(engine, RunningEngine) else None
        if isinstance(engine, RunningEngine) and digest is not None and digest == expected:
            return engine.pid, digest
        if (supervisor := read_supervisor(place.home)) is not None:
            gone_since_s = None
            _check_tried(supervisor, ask.slot)
        else:
            gone_since_s = gone_since_s or time.monotonic()
            if time.monotonic() - gone_since_s >= GONE_S:
                raise PinError(
                    f"pin {ask.slot} is at {version_words(ask.to)}, and `failsoft up` has ended; "
                    "start it again",
                    slot=ask.slot,
                )
        time.sleep(POLL_S)


def _pinned_version(store: "Store", ask: MoveAsk) -> PinnedVersion:
    """Return the pin's version; while the store cannot be read that is what was wanted.

    Raises:
        PinError: It is another one by now.
    """
    try:
        pin = store.pins.pins().get(ask.slot)
    except StoreError:
        return ask.to
    if pin is None or not is_same_version(pin.version, ask.to):
        raise PinError(
            f"pin {ask.slot} was moved on meanwhile; look with `failsoft pin show {ask.slot}`",
            slot=ask.slot,
        )
    return pin.version


def _check_tried(supervisor: SupervisorState, slot: str) -> None:
    """See that the engine of *slot* is not given up.

    Raises:
        PinError: It is.
    """
    child = next((child for child in supervisor.children if child.name == slot), None)
    if child is not None and child.phase == "gave_up":
        raise PinError(
            f"pin {slot} went back, but its engine was given up: {child.last_exit}; see "
            "`failsoft status`",
            slot=slot,
        )


def _reported(engine: RunningEngine) -> str | None:
    """Return the digest that the process reports of itself; None while it does not answer."""
    from failsoft.serving.supervisor.moves.trial import TrialError, reported_digest

    try:
        return asyncio.run(reported_digest(engine, answer_s=_ANSWER_S))
    except TrialError:
        return None
