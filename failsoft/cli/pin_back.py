"""Tells of a pin that went back by itself, once the process that serves has said that it did."""

import asyncio
import time
from typing import TYPE_CHECKING

import typer

from failsoft.cli.pin_follow import GONE_S, POLL_S, leaving_it_to_the_supervisor, tell
from failsoft.cli.pin_place import PinPlace
from failsoft.errors import PinError, StoreError
from failsoft.fallback.discovery import EngineFinder, RunningEngine
from failsoft.fallback.pins.pinned import is_same_version
from failsoft.fallback.pins.words import digest_head, version_words
from failsoft.pin_records import PinnedVersion
from failsoft.run_state import SupervisorState, read_supervisor

if TYPE_CHECKING:
    from failsoft.store.store import Store

_ANSWER_S = 5.0
"""How long an engine may take to say what it runs, before it is asked again."""


def tell_back(
    store: "Store", slot: str, version: PinnedVersion, *, place: PinPlace, waits: bool
) -> None:
    """Say that the pin went back by itself; if *waits*, once what runs has said so too.

    Raises:
        PinError: It does not run, and is not tried any more.
    """
    line = f"pin {slot} went back to {version_words(version)} by itself; nothing to move"
    if not waits:
        typer.echo(line)
        return
    tell(f"{line}; waiting for its engine …")
    with leaving_it_to_the_supervisor(slot, can_abort=False):
        pid, digest = _wait_served(store, slot, version, place)
    tell(f"          process {pid} reported version {digest_head(digest)} of itself")
    typer.echo(f"pin {slot} runs {version_words(version)}: it went back by itself")


def _wait_served(
    store: "Store", slot: str, version: PinnedVersion, place: PinPlace
) -> tuple[int, str]:
    """Return who serves the slot, once that reports the digest that is pinned.

    Raises:
        PinError: Nobody does, and nobody is going to.
    """
    finder, gone_since_s = EngineFinder(place.home), None
    while True:
        # The pin's digest is noted once its engine has told it.
        expected = _pinned_version(store, slot, version).digest or version.digest
        engine = finder.find(slot)
        digest = _reported(engine) if isinstance(engine, RunningEngine) else None
        if isinstance(engine, RunningEngine) and digest is not None and digest == expected:
            return engine.pid, digest
        if (supervisor := read_supervisor(place.home)) is not None:
            gone_since_s = None
            _check_tried(supervisor, slot)
        else:
            gone_since_s = gone_since_s or time.monotonic()
            if time.monotonic() - gone_since_s >= GONE_S:
                raise PinError(
                    f"pin {slot} is at {version_words(version)}, and `failsoft up` has ended; "
                    "start it again",
                    slot=slot,
                )
        time.sleep(POLL_S)


def _pinned_version(store: "Store", slot: str, version: PinnedVersion) -> PinnedVersion:
    """Return the pin's version; while the store cannot be read that is what was wanted.

    Raises:
        PinError: It is another one by now.
    """
    try:
        pin = store.pins.pins().get(slot)
    except StoreError:
        return version
    if pin is None or not is_same_version(pin.version, version):
        raise PinError(
            f"pin {slot} was moved on meanwhile; look with `failsoft pin show {slot}`",
            slot=slot,
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
