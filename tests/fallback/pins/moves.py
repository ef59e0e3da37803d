"""Moves carried out in a store at once, as a supervisor would over a minute."""

from failsoft.config.settings import Settings
from failsoft.fallback.pins.pinned import pinned_version
from failsoft.pin_records import MoveAsk, MoveKind, MoveState, PinMove, PinnedVersion
from failsoft.store import Store

BEFORE_SWITCH = (
    MoveState.CHECKING,
    MoveState.STARTING,
    MoveState.WARMING,
    MoveState.PROVING,
    MoveState.SMOKING,
)
DIGESTS = {"v1": "1" * 64, "v2": "2" * 64, "v3": "3" * 64}


def version_of(settings: Settings, name: str, *, digest: str | None = "known") -> PinnedVersion:
    """Return the version called *name*, as a pin keeps it; its digest is that of `DIGESTS`."""
    digest = DIGESTS[name] if digest == "known" else digest
    version = pinned_version(name, settings.versions, digest=digest)
    assert version is not None
    return version


def ask_for(
    to: PinnedVersion, *, slot: str = "primary", kind: MoveKind = MoveKind.SET, why: str = "try it"
) -> MoveAsk:
    """Return what an operator called ann asks."""
    return MoveAsk(slot=slot, kind=kind, to=to, who="ann", why=why)


def walk(store: Store, move: PinMove, *, until: MoveState = MoveState.SMOKING) -> PinMove:
    """Carry *move* out up to a state that lies before the switch."""
    claimed = store.pins.claim(move.move_id, owner="a supervisor")
    assert claimed is not None
    for state in BEFORE_SWITCH:
        if claimed.state is until:
            break
        claimed = store.pins.advance(claimed, state)
    return claimed


def carry_out(store: Store, ask: MoveAsk) -> PinMove:
    """Ask for a move and carry it out to its confirmation."""
    move = store.pins.switch(walk(store, store.pins.ask(ask)), proof={})
    return store.pins.end(store.pins.advance(move, MoveState.DRAINING), MoveState.CONFIRMED)
