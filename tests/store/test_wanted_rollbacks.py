"""A rollback that is asked for while a move has switched: the end of one begins the other."""

import os
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from failsoft.config.settings import StoreConfig
from failsoft.errors import PinConflictError, PinError
from failsoft.pin_records import MoveAsk, MoveKind, MoveState, PinMove, PinnedVersion
from failsoft.store import Store
from failsoft.store.database import Database
from failsoft.store.migrate import upgrade
from failsoft.store.pins import PinStore
from tests.fallback.pins.moves import ask_for, walk
from tests.store.revisions import upgrade_to

OpenStore = Callable[..., Store]

V0 = PinnedVersion(name="v0", settings_json='{"source": "path:/v0"}', digest="0" * 64)
V1 = PinnedVersion(name="v1", settings_json='{"source": "path:/v1"}', digest="1" * 64)
V2 = PinnedVersion(name="v2", settings_json='{"source": "path:/v2"}', digest="2" * 64)


def back_to(to: PinnedVersion = V1, who: str = "bob") -> MoveAsk:
    """Return what an operator asks who sees that the new version is bad."""
    return MoveAsk(slot="primary", kind=MoveKind.ROLLBACK, to=to, who=who, why="callers complain")


def switched(store: Store) -> PinMove:
    """Have a move from v1 to v2 be switched."""
    store.pins.note_file_pin("primary", V1)
    return store.pins.switch(walk(store, store.pins.ask(ask_for(V2))), proof={})


def test_the_end_of_the_move_is_the_beginning_of_the_rollback(open_store: OpenStore) -> None:
    """In one transaction: no third party comes in between, and it needs no process to go on."""
    store = open_store()
    first = switched(store)

    left = store.pins.ask_rollback(first, back_to())
    draining = store.pins.advance(first, MoveState.DRAINING)
    ended = store.pins.end(draining, MoveState.CONFIRMED)

    assert left is not None
    assert left.rollback is not None
    assert (left.state, left.rollback.ask, left.rollback.move_id) == (
        MoveState.SWITCHING,
        back_to(),
        None,
    )
    (rollback,) = store.pins.open_moves()
    assert ended.rollback is not None
    assert ended.rollback.move_id == rollback.move_id
    assert (rollback.kind, rollback.state) == (MoveKind.ROLLBACK, MoveState.ASKED)
    assert (rollback.left, rollback.to) == (V2, V1)
    assert (rollback.who, rollback.why) == ("bob", "callers complain")
    assert (rollback.owner, rollback.rollback) == (None, None)


@pytest.mark.parametrize(("to", "num_asked"), [(V1, 0), (replace(V1, name="another"), 0), (V0, 1)])
def test_a_pin_that_went_back_by_itself_is_moved_only_if_that_is_not_the_target(
    open_store: OpenStore, to: PinnedVersion, num_asked: int
) -> None:
    """It popped once more than was meant; who wanted what, and why, is kept all the same."""
    store = open_store()
    first = switched(store)
    assert store.pins.ask_rollback(first, back_to(to)) is not None

    ended = store.pins.end(first, MoveState.FAILED, reason="it was not ready")

    assert store.pins.pins()["primary"].version == V1
    assert [move.left for move in store.pins.open_moves()] == [V1] * num_asked
    assert ended.rollback is not None
    assert ended.rollback.ask.why == "callers complain"
    assert (ended.rollback.move_id is not None) == bool(num_asked)


def test_of_two_who_roll_it_back_the_first_wins(open_store: OpenStore) -> None:
    """The second is told who, and where to."""
    store = open_store()
    first = switched(store)
    store.pins.ask_rollback(first, back_to())

    with pytest.raises(PinConflictError, match="and bob rolls it back to v1; wait for its end"):
        store.pins.ask_rollback(first, back_to(V0, who="eve"))
    with pytest.raises(PinConflictError, match="and bob rolls it back to v1"):
        store.pins.ask(ask_for(V0))

    (kept,) = store.pins.open_moves()
    assert kept.rollback is not None
    assert kept.rollback.ask.who == "bob"


def test_only_what_has_switched_and_is_not_over_is_left(open_store: OpenStore) -> None:
    """Before the switch an abort is what takes it back; after the end it is an ordinary move."""
    store = open_store()
    store.pins.note_file_pin("primary", V1)
    smoking = walk(store, store.pins.ask(ask_for(V2)))

    with pytest.raises(PinError, match=r"is smoking and has not switched: .* pin abort primary"):
        store.pins.ask_rollback(smoking, back_to())
    ended = store.pins.end(store.pins.switch(smoking, proof={}), MoveState.CONFIRMED)

    assert store.pins.ask_rollback(smoking, back_to()) is None
    assert (ended.rollback, store.pins.open_moves()) == (None, [])


def test_one_that_was_ended_as_an_orphan_is_followed_too(open_store: OpenStore) -> None:
    """Whoever ends it."""
    store = open_store()
    store.pins.ask_rollback(switched(store), back_to(V0))

    store.pins.end_orphan("primary", who="ann")

    assert [move.to for move in store.pins.open_moves()] == [V0]


def ask_at_once(
    store: Store, first: PinMove, together: threading.Barrier, taken: list[PinMove | None]
) -> None:
    """Ask for a rollback of *first* at the moment in which it ends."""
    together.wait()
    taken.append(store.pins.ask_rollback(first, back_to()))


def test_a_rollback_that_is_asked_at_the_moment_of_the_end_is_asked_once(
    open_store: OpenStore,
) -> None:
    """Either the move takes it along, or whoever asks is told to ask in the ordinary way."""
    operators, supervisor = open_store(), open_store()
    for _ in range(20):
        first, together = switched(supervisor), threading.Barrier(2)
        taken: list[PinMove | None] = []
        thread = threading.Thread(target=ask_at_once, args=(operators, first, together, taken))
        thread.start()
        together.wait()
        supervisor.pins.end(first, MoveState.CONFIRMED)
        thread.join()

        asked = supervisor.pins.open_moves()
        assert len(asked) == (taken[0] is not None)
        for move in [*asked, *([] if asked else [supervisor.pins.ask(back_to())])]:
            moved = supervisor.pins.switch(walk(supervisor, move), proof={})
            supervisor.pins.end(moved, MoveState.CONFIRMED)


def test_a_move_of_an_older_failsoft_wants_no_rollback(store_config: StoreConfig) -> None:
    """Its row is kept, and takes one once the database was upgraded."""
    database = Database(store_config, environ=os.environ)
    with database.write() as connection:
        upgrade_to(connection, "0003")
        connection.exec_driver_sql(
            "INSERT INTO pin_moves (move_id, slot, kind, to_name, to_settings_json, who, why, swap,"
            " accept_unproven, state, steps_json) VALUES ('0000000000010', 'primary', 'set', 'v2',"
            " '{}', 'ann', 'try', 'beside', FALSE, 'draining', '[[\"draining\", 1]]')"
        )

    assert upgrade(database) == "0003"
    pins = PinStore(database)
    (old,) = pins.open_moves()
    left = pins.ask_rollback(old, back_to())
    database.dispose()

    assert old.rollback is None
    assert left is not None
    assert left.rollback is not None
