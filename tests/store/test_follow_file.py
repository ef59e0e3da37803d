"""A moved slot is given back to the settings file: in SQLite and PostgreSQL alike."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from failsoft.errors import PinConflictError, PinError
from failsoft.pin_records import MoveKind, MoveState, Pin, PinMove, PinnedVersion
from failsoft.store import Store
from tests.store.test_pins import V1, V2, ask_for, walk_to

OpenStore = Callable[..., Store]
V3 = PinnedVersion(name="v3", settings_json='{"source": "path:/v3"}')


def moved(store: Store, to: PinnedVersion = V2) -> Pin:
    """Have the file pin v1 and a move bring *to*; return the pin."""
    store.pins.note_file_pin("primary", V1)
    move = store.pins.switch(
        walk_to(store, store.pins.ask(ask_for(to)), MoveState.SMOKING), proof={"pid": 7}
    )
    store.pins.end(move, MoveState.CONFIRMED)
    return store.pins.pins()["primary"]


def follow(store: Store, seen: Pin) -> PinMove:
    """Give the slot back."""
    return store.pins.follow_file("primary", seen.version, who="bob", why="git again", seen=seen)


def test_a_slot_that_was_given_back_follows_the_file(open_store: OpenStore, clock: Any) -> None:
    """The history says who and why; since when it runs, and its proof, stay."""
    store = open_store()
    seen = moved(store)
    clock.now_s += 60

    move = follow(store, seen)
    pin = store.pins.pins()["primary"]
    held = store.pins.holding_moves()["primary"]
    same = store.pins.note_file_pin("primary", V2)
    changed = store.pins.note_file_pin("primary", V3)

    assert (pin.version, pin.is_moved, pin.since_ms) == (V2, False, seen.since_ms)
    assert (move.kind, move.who, move.why) == (MoveKind.FOLLOW_FILE, "bob", "git again")
    assert (move.state, move.asked_at_ms) == (MoveState.CONFIRMED, clock.now_ms)
    assert move.proof_json == '{"pid": 7}'
    assert held == move
    assert same == pin
    assert (changed.version, changed.is_moved) == (V3, False)


def test_a_move_after_it_that_fails_late_leaves_the_slot_with_the_file(
    open_store: OpenStore,
) -> None:
    """It went back to what the file pinned, which must not look like a move's."""
    store = open_store()
    follow(store, moved(store))
    move = walk_to(store, store.pins.ask(ask_for(V3)), MoveState.SMOKING)
    move = store.pins.switch(move, proof={})
    assert store.pins.pins()["primary"].is_moved

    store.pins.end(move, MoveState.FAILED, reason="it died")

    pin = store.pins.pins()["primary"]
    assert (pin.version, pin.is_moved) == (V2, False)


def test_it_is_refused_while_a_move_is_under_way(open_store: OpenStore) -> None:
    """What that move goes back to must still be there."""
    store = open_store()
    seen = moved(store)
    store.pins.ask(ask_for(V3))

    with pytest.raises(PinConflictError, match="ann moves it to v3 already"):
        follow(store, seen)

    assert store.pins.pins()["primary"] == seen


def test_it_is_refused_when_the_pin_is_another_by_now(open_store: OpenStore) -> None:
    """Between a look and the command's write somebody may have rolled back."""
    store = open_store()
    seen = moved(store)
    move = walk_to(store, store.pins.ask(ask_for(V1)), MoveState.SMOKING)
    store.pins.end(store.pins.switch(move, proof={}), MoveState.CONFIRMED)

    with pytest.raises(PinError, match="changed at this very moment"):
        follow(store, seen)

    pin = store.pins.pins()["primary"]
    assert (pin.version, pin.is_moved) == (V1, True)


def test_of_two_who_give_a_slot_back_at_once_one_does(open_store: OpenStore) -> None:
    """The history has it once; ten rounds, since one may go well by chance."""
    store, other = open_store(), open_store()

    for to in (V2, V3) * 5:
        seen = moved(store, to)
        before = len(store.pins.history("primary"))
        assert sorted(race(seen, store, other)) == ["changed", "given back"]
        assert len(store.pins.history("primary")) == before + 1


def race(seen: Pin, *stores: Store) -> list[str]:
    """Give the slot back over all *stores* at once; return what became of each."""
    start, ends = threading.Barrier(len(stores)), []

    def give(store: Store) -> None:
        start.wait(10)
        try:
            follow(store, seen)
        except PinError:
            ends.append("changed")
        else:
            ends.append("given back")

    threads = [threading.Thread(target=give, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return ends
