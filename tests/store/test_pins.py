"""Pins and moves in the store: of two one wins, an abort beats the switch, nothing gets lost."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from failsoft.errors import PinConflictError, PinError
from failsoft.pin_records import (
    EvalScore,
    MoveAsk,
    MoveKind,
    MoveState,
    PinMove,
    PinnedVersion,
)
from failsoft.store import Store

OpenStore = Callable[..., Store]

V1 = PinnedVersion(name="v1", settings_json='{"source": "path:/v1"}', digest="1" * 64)
V2 = PinnedVersion(name="v2", settings_json='{"source": "path:/v2"}')


def ask_for(to: PinnedVersion = V2, slot: str = "primary", who: str = "ann") -> MoveAsk:
    """Return what an operator asks."""
    return MoveAsk(slot=slot, kind=MoveKind.SET, to=to, who=who, why="try it")


def walk_to(store: Store, move: PinMove, state: MoveState) -> PinMove:
    """Carry a move out up to *state*, which lies before the switch."""
    claimed = store.pins.claim(move.move_id, owner="me")
    assert claimed is not None
    for step in (
        MoveState.CHECKING,
        MoveState.STARTING,
        MoveState.WARMING,
        MoveState.PROVING,
        MoveState.SMOKING,
    ):
        if claimed.state is state:
            break
        claimed = store.pins.advance(claimed, step)
    return claimed


def test_the_files_pin_holds_until_a_move_decides(open_store: OpenStore, clock: Any) -> None:
    """A change in the file is history too; after a move the file no longer counts."""
    store = open_store()

    first = store.pins.note_file_pin("primary", V1)
    again = store.pins.note_file_pin("primary", V1)
    changed = store.pins.note_file_pin("primary", V2)

    assert (first.version, first.is_moved) == (V1, False)
    assert again == first
    assert changed.version == V2
    assert [move.to.name for move in store.pins.history("primary")] == ["v2", "v1"]

    move = walk_to(store, store.pins.ask(ask_for(V1)), MoveState.SMOKING)
    move = store.pins.switch(move, proof={})
    store.pins.end(move, MoveState.CONFIRMED)
    held = store.pins.note_file_pin("primary", V2)
    assert (held.version, held.is_moved) == (V1, True)


def test_a_move_keeps_every_state_with_its_time(open_store: OpenStore, clock: Any) -> None:
    """Who, when, why, from, to and proof are there afterwards."""
    store = open_store()
    store.pins.note_file_pin("primary", V1)
    began_ms = clock.now_ms
    move = walk_to(store, store.pins.ask(ask_for()), MoveState.SMOKING)
    clock.now_s += 2
    move = store.pins.switch(move, proof={"digest": "2" * 64})
    move = store.pins.advance(move, MoveState.DRAINING)
    move = store.pins.end(move, MoveState.CONFIRMED)

    kept = store.pins.history("primary")[0]

    assert kept == move
    assert (kept.who, kept.why, kept.left, kept.to) == ("ann", "try it", V1, V2)
    assert kept.asked_at_ms == began_ms
    assert [step.state for step in kept.steps][-3:] == [
        MoveState.SWITCHING,
        MoveState.DRAINING,
        MoveState.CONFIRMED,
    ]
    assert kept.ended_at_ms == began_ms + 2000
    assert kept.proof_json == '{"digest": "' + "2" * 64 + '"}'
    assert store.pins.open_move("primary") is None


def test_last_words_of_a_process_end_a_move_on_every_store(open_store: OpenStore) -> None:
    """PostgreSQL takes no NUL: the end of such a move could never be written down."""
    store = open_store()
    move = store.pins.ask(ask_for())

    ended = store.pins.end(
        move, MoveState.FAILED, reason="it\x00said\x1b[1m no\nmore " + "w" * 2_000
    )

    assert ended.reason == "it said [1m no more " + "w" * 2_000


def test_of_two_operators_at_once_the_first_wins(open_store: OpenStore) -> None:
    """Both ask at the same moment, on connections of their own; other slots go on."""
    stores = [open_store() for _ in range(4)]
    together = threading.Barrier(len(stores))
    moves: list[PinMove] = []
    conflicts: list[PinConflictError] = []

    def ask(store: Store, who: str) -> None:
        together.wait()
        try:
            moves.append(store.pins.ask(ask_for(who=who)))
        except PinConflictError as exc:
            conflicts.append(exc)

    threads = [
        threading.Thread(target=ask, args=(store, f"operator {num}"))
        for num, store in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(moves) == 1
    assert len(conflicts) == len(stores) - 1
    assert all(f"{moves[0].who} moves it to v2 already" in str(exc) for exc in conflicts)
    assert stores[0].pins.ask(ask_for(slot="small")).slot == "small"


def test_an_abort_beats_the_switch(open_store: OpenStore) -> None:
    """The pin stays; the executor sees who took the move back."""
    store = open_store()
    store.pins.note_file_pin("primary", V1)
    move = walk_to(store, store.pins.ask(ask_for()), MoveState.SMOKING)

    store.pins.wish_abort("primary", who="bob")
    move = store.pins.switch(move, proof={})

    assert (move.state, move.abort_by) == (MoveState.SMOKING, "bob")
    store.pins.end(move, MoveState.ABORTED, reason="taken back by bob")
    assert store.pins.pins()["primary"].version == V1
    assert store.pins.ask(ask_for()).state is MoveState.ASKED


def test_an_abort_after_the_switch_is_refused(open_store: OpenStore) -> None:
    """What serves already is left by a rollback."""
    store = open_store()
    move = walk_to(store, store.pins.ask(ask_for()), MoveState.SMOKING)
    store.pins.switch(move, proof={})

    with pytest.raises(PinError, match="switching already: use `failsoft rollback primary"):
        store.pins.wish_abort("primary", who="bob")
    # An abort, which is refused, must not be its advice.
    with pytest.raises(PinConflictError, match=r"or leave it at once \(`failsoft rollback primary"):
        store.pins.ask(ask_for())
    with pytest.raises(PinError, match="no move of pin small is under way"):
        store.pins.wish_abort("small", who="bob")


@pytest.mark.parametrize("was_moved", [False, True])
def test_a_move_that_fails_after_the_switch_gives_the_pin_back(
    open_store: OpenStore, was_moved: bool
) -> None:
    """As it was before: a pin of the file follows the file again."""
    store = open_store()
    before = store.pins.note_file_pin("primary", V1)
    if was_moved:
        move = walk_to(store, store.pins.ask(ask_for(V1)), MoveState.SMOKING)
        move = store.pins.switch(move, proof={})
        before = store.pins.pins()["primary"]
        store.pins.end(move, MoveState.CONFIRMED)

    move = walk_to(store, store.pins.ask(ask_for()), MoveState.SMOKING)
    move = store.pins.switch(move, proof={})
    assert store.pins.pins()["primary"].version == V2
    store.pins.end(move, MoveState.FAILED, reason="it died")

    after = store.pins.pins()["primary"]
    assert (after.version, after.is_moved) == (V1, was_moved)
    assert after.move_id == before.move_id


def test_only_one_process_carries_a_move_on(open_store: OpenStore) -> None:
    """One that slept for long cannot overwrite what another did meanwhile."""
    store, other = open_store(), open_store()
    asked = store.pins.ask(ask_for())
    mine = store.pins.claim(asked.move_id, owner="me")
    assert mine is not None
    assert other.pins.claim(asked.move_id, owner="other") is None

    other.pins.end(mine, MoveState.UNDONE, reason="its supervisor died")

    with pytest.raises(PinError, match="no longer asked"):
        store.pins.advance(mine, MoveState.CHECKING)


def test_a_digest_is_noted_once(open_store: OpenStore) -> None:
    """What a pin was proven with does not change under it."""
    store = open_store()
    store.pins.note_file_pin("primary", V2)

    store.pins.note_digest("primary", "another", "8" * 64)
    assert store.pins.pins()["primary"].version.digest is None
    store.pins.note_digest("primary", "v2", "2" * 64)
    store.pins.note_digest("primary", "v2", "9" * 64)

    assert store.pins.pins()["primary"].version.digest == "2" * 64


def test_the_newest_score_of_each_eval_set_counts(open_store: OpenStore) -> None:
    """A version without a run has none, which is not a score of 0."""
    store = open_store()
    for at_ms, eval_set, score in ((1, "faq", 0.9), (2, "faq", 0.7), (1, "tone", 0.5)):
        store.eval_scores.add(
            EvalScore(
                version_digest="1" * 64,
                eval_set=eval_set,
                at_ms=at_ms,
                score=score,
                num_samples=50,
            )
        )

    newest = store.eval_scores.newest("1" * 64)

    assert {name: score.score for name, score in newest.items()} == {"faq": 0.7, "tone": 0.5}
    assert store.eval_scores.newest("2" * 64) == {}


def test_the_file_does_not_move_a_slot_that_a_move_has_under_way(open_store: OpenStore) -> None:
    """Else the move, if it failed, would give back what the slot had not run."""
    store = open_store()
    store.pins.note_file_pin("primary", V1)
    move = walk_to(store, store.pins.ask(ask_for()), MoveState.CHECKING)

    meanwhile = store.pins.note_file_pin("primary", V2)
    store.pins.end(move, MoveState.FAILED, reason="no room")

    assert meanwhile.version == V1
    assert store.pins.note_file_pin("primary", V2).version == V2


def test_what_has_not_switched_cannot_be_confirmed(open_store: OpenStore) -> None:
    """The pin would not point at what the history says."""
    store = open_store()
    store.pins.note_file_pin("primary", V1)
    move = walk_to(store, store.pins.ask(ask_for()), MoveState.SMOKING)

    with pytest.raises(ValueError, match="only what has switched"):
        store.pins.end(move, MoveState.CONFIRMED)
