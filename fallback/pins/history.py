"""What the moves of a slot amount to: where a rollback goes, what is proven, what differs. Pure.

The history of a slot is a stack of the versions that held it: a move pushes its target, a
rollback pops down to its own. Moves that were not confirmed changed nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from failsoft.config.settings import Settings
from failsoft.fallback.pins.pinned import is_same_version, pinned_version
from failsoft.pin_records import MoveState, Pin, PinMove, PinnedVersion


def version_stack(moves: Iterable[PinMove]) -> list[PinnedVersion]:
    """Return the versions that held a slot and that a rollback may reach, the holder last.

    Args:
        moves: Of one slot, in any order.
    """
    stack: list[PinnedVersion] = []
    for move in _confirmed(moves):
        if move.left is not None:
            _see_top(stack, move.left)
        if stack and is_same_version(stack[-1], move.to):
            # Such as a new price: no other version, and its digest is known already.
            stack[-1] = replace(move.to, digest=move.to.digest or stack[-1].digest)
            continue
        if move.kind.goes_back and (at := _index(stack, move.to)) is not None:
            del stack[at:]
        stack.append(move.to)
    return stack


def rollback_target(moves: Iterable[PinMove]) -> PinnedVersion | None:
    """Return what a rollback that names no version goes to; None when nothing was there before.

    Args:
        moves: Of one slot, in any order.
    """
    stack = version_stack(moves)
    return stack[-2] if len(stack) > 1 else None


def as_confirmed(moves: Iterable[PinMove], open_move: PinMove) -> list[PinMove]:
    """Return *moves* as they are to be, once *open_move*, which has switched, is confirmed."""
    done = replace(open_move, state=MoveState.CONFIRMED)
    return [done, *(move for move in moves if move.move_id != open_move.move_id)]


def went_back_by_itself(moves: Iterable[PinMove]) -> PinMove | None:
    """Return the newest move of a slot if it had switched, failed, and gave the pin back.

    One that was to go back itself does not count: it left the bad version where it was.

    Args:
        moves: Of one slot, in any order; those of the settings file do not count.
    """
    asked = [move for move in moves if not move.kind.is_by_file]
    newest = max(asked, key=lambda move: move.move_id, default=None)
    if newest is None or newest.state is not MoveState.FAILED or newest.kind.goes_back:
        return None
    return newest if any(step.state.is_switched for step in newest.steps) else None


def held_versions(moves: Iterable[PinMove]) -> list[PinnedVersion]:
    """Return each version that ever held a slot once, the one that came last first.

    Args:
        moves: Of one slot, in any order.
    """
    held: list[PinnedVersion] = []
    for move in reversed(_confirmed(moves)):
        for version in (move.to, move.left):
            if version is None:
                continue
            known = _index(held, version)
            if known is None:
                held.append(version)
            elif held[known].digest is None:
                held[known] = version
    return held


def was_confirmed(moves: Iterable[PinMove], version: PinnedVersion) -> bool:
    """Return whether the very *version* held a slot before, by its digest.

    What a confirmed move left counts too: the settings' first pin has no move that proved it,
    but only an engine that ran has told its digest.

    Args:
        moves: Of one slot, in any order.
        version: A digest that is not known was never confirmed.
    """
    if version.digest is None:
        return False
    return any(held.digest == version.digest for held in held_versions(moves))


def pin_differences(
    settings: Settings,
    pins: Mapping[str, Pin],
    moves: Mapping[str, PinMove] | None = None,
) -> list[str]:
    """Return one line for each slot that a move has pinned to something else than the file.

    Each names both ways to end it.

    Args:
        settings: What the file says, paths absolute.
        pins: What the store says, by slot.
        moves: The moves that put the pins there, by id; those that lack are not named.
    """
    said, moves = file_pins(settings), moves or {}
    return [
        difference_words(pin, said[slot], moves.get(pin.move_id))
        for slot, pin in pins.items()
        if slot in said and differs_from_file(pin, said[slot])
    ]


def file_pins(settings: Settings) -> dict[str, PinnedVersion]:
    """Return what a settings file pins, by slot; its paths are absolute."""
    found = {slot: pinned_version(name, settings.versions) for slot, name in settings.pins.items()}
    return {slot: version for slot, version in found.items() if version is not None}


def differs_from_file(pin: Pin, said: PinnedVersion) -> bool:
    """Return whether a move pinned something else than the settings file says."""
    return pin.is_moved and not is_same_version(pin.version, said)


def difference_words(pin: Pin, said: PinnedVersion, move: PinMove | None) -> str:
    """Return in one line how a pin differs from the file, and both ways to end it.

    Args:
        pin: It.
        said: What the file says.
        move: The one that put the pin there; None where it is not known.
    """
    slot, name = pin.slot, said.name
    if name != pin.version.name:
        what = f"{pin.version.name} is pinned, the settings file says {name}"
    else:
        what = f"{name} is pinned as it was then, the settings file now means another by it"
    return (
        f"pin {slot}: {what} (since {stamp(pin.since_ms)}{_by(move)}); to keep it: `failsoft "
        f"pin write`, to go by the file: `failsoft pin set {slot} {name} --why TEXT`"
    )


def moves_behind(pins: Mapping[str, Pin], history: Sequence[PinMove]) -> dict[str, PinMove]:
    """Return those of *history* that put *pins* where they are, by their ids."""
    wanted = {pin.move_id for pin in pins.values()}
    return {move.move_id: move for move in history if move.move_id in wanted}


def stamp(at_ms: int) -> str:
    """Return a moment for people, in UTC.

    >>> stamp(0)
    '1970-01-01 00:00:00 UTC'
    """
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S UTC}"


def _by(move: PinMove | None) -> str:
    return "" if move is None else f", by {move.who}: {move.why}"


def _confirmed(moves: Iterable[PinMove]) -> list[PinMove]:
    done = (move for move in moves if move.state is MoveState.CONFIRMED)
    return sorted(done, key=lambda move: move.move_id)


def _see_top(stack: list[PinnedVersion], left: PinnedVersion) -> None:
    """Take in what *left* tells of the version on top: its digest was learnt while it ran."""
    if not stack:
        stack.append(left)
    elif stack[-1].digest is None and is_same_version(stack[-1], left):
        stack[-1] = left


def _index(versions: Sequence[PinnedVersion], version: PinnedVersion) -> int | None:
    """Return where *version* stands last; None when it does not."""
    places = [at for at, known in enumerate(versions) if is_same_version(known, version)]
    return places[-1] if places else None
