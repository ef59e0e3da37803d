"""How the slots' pins stand: what the store says, beside what the settings file says; pure."""

from collections.abc import Mapping

from failsoft.dashboard.sources.ledger import LedgerReading
from failsoft.dashboard.standing import (
    FileDifference,
    MoveBehind,
    MoveUnderWay,
    PinnedSlot,
    Unknown,
)
from failsoft.fallback.pins.history import difference_words, differs_from_file
from failsoft.fallback.pins.words import kind_words
from failsoft.pin_records import MoveKind, Pin, PinMove, PinnedVersion


def pinned_slots(
    store: LedgerReading, said: Mapping[str, PinnedVersion] | Unknown
) -> tuple[PinnedSlot, ...]:
    """Return how each slot's pin stands.

    Args:
        store: What the store says.
        said: What the settings file says, by slot.
    """
    moves = {move.slot: move for move in store.open_moves}
    return tuple(
        PinnedSlot(
            slot=slot,
            version_name=pin.version.name,
            version_digest=pin.version.digest,
            is_moved=pin.is_moved,
            by=_behind(store.holding_moves.get(slot)),
            differs_from_file=_difference(pin, said, store.holding_moves.get(slot)),
            since_ms=pin.since_ms,
            move=_under_way(moves[slot]) if slot in moves else None,
        )
        for slot, pin in store.pins.items()
    )


def _behind(move: PinMove | None) -> MoveBehind | None:
    if move is None or move.kind is MoveKind.FILE:
        return None
    return MoveBehind(
        kind=kind_words(move.kind), who=move.who, why=move.why, at_ms=move.asked_at_ms
    )


def _difference(
    pin: Pin, said: Mapping[str, PinnedVersion] | Unknown, move: PinMove | None
) -> FileDifference | Unknown | None:
    if not pin.is_moved:
        return None
    if isinstance(said, Unknown):
        return said
    if pin.slot not in said or not differs_from_file(pin, said[pin.slot]):
        return None
    words = difference_words(pin, said[pin.slot], move)
    return FileDifference(says=said[pin.slot].name, words=words)


def _under_way(move: PinMove) -> MoveUnderWay:
    return MoveUnderWay(
        kind=kind_words(move.kind),
        to_name=move.to.name,
        to_digest=move.to.digest,
        state=move.state.value,
        state_since_ms=move.steps[-1].at_ms,
        asked_at_ms=move.asked_at_ms,
        who=move.who,
        why=move.why,
        abort_by=move.abort_by,
    )
