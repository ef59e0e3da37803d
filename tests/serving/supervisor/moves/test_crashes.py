"""The supervisor is killed in the middle of a move: the next one undoes it or ends it."""

from pathlib import Path

from failsoft.fallback.discovery import candidate_file
from failsoft.pin_records import MoveState, PinMove
from tests.serving.supervisor.moves.rig import Pins, moving_up, open_store
from tests.serving.supervisor.rig import ONE_ENGINE, running_up


def crash(folder: Path, state: MoveState, *, of: str = "v3", **changes: str) -> PinMove:
    """Kill the supervisor while a move is in *state*; return the move."""
    with moving_up(folder) as pins:
        stall = pins.stall(of, state)
        move = pins.ask(**changes)
        found = pins.wait(move, state)
        pins.up.popen.kill()
        pins.up.popen.wait(10)
        stall.unlink()
        return found


def judge(pins: Pins, move: PinMove, state: MoveState, version: str) -> PinMove:
    """Wait for the end of *move*, which must be *state*, and see that *version* serves."""
    ended = pins.end_of(move)
    assert ended.state is state, ended
    assert pins.serving()[0] == version
    assert not candidate_file(pins.up.home, "primary").exists()
    return ended


def test_before_the_switch_it_is_undone_and_a_retry_works(tmp_path: Path) -> None:
    """In the check, with an engine on trial, and while the old engine is stopped."""
    checking = crash(tmp_path, MoveState.CHECKING)
    with moving_up(tmp_path) as pins:
        judge(pins, checking, MoveState.UNDONE, "v1")
        stall = pins.stall("v3", MoveState.WARMING)
        warming = pins.ask(swap="stop-first")
        pins.wait(warming, MoveState.WARMING)
        pins.up.popen.kill()
        pins.up.popen.wait(10)
        stall.unlink()

    with moving_up(tmp_path) as pins:
        ended = judge(pins, warming, MoveState.UNDONE, "v1")
        assert "died while warming" in (ended.reason or "")
        assert pins.move().state is MoveState.CONFIRMED


def test_after_the_switch_it_is_proven_and_confirmed(tmp_path: Path) -> None:
    """Also right after the transaction, when no ladder has found the new engine yet."""
    draining = crash(tmp_path, MoveState.DRAINING, of="v1")
    with moving_up(tmp_path) as pins:
        judge(pins, draining, MoveState.CONFIRMED, "v3")
        stall = pins.stall("v2", MoveState.SMOKING)
        smoking = pins.wait(pins.ask("v2"), MoveState.SMOKING)
        pins.up.popen.kill()
        pins.up.popen.wait(10)
        stall.unlink()
    with open_store(tmp_path) as store:
        switched = store.pins.switch(smoking, proof={})

    with moving_up(tmp_path) as pins:
        judge(pins, switched, MoveState.CONFIRMED, "v2")


def test_a_pin_that_cannot_be_started_any_more_goes_back(tmp_path: Path) -> None:
    """The old version serves; the move has failed."""
    draining = crash(tmp_path, MoveState.DRAINING, of="v1")

    children = {"v3": {"exits": 1, "says": ["no such layer"]}}
    with (
        running_up(tmp_path, settings=ONE_ENGINE, children=children) as up,
        open_store(tmp_path) as store,
    ):
        ended = judge(Pins(up, store), draining, MoveState.FAILED, "v1")

        assert "its engine was given up" in (ended.reason or "")
        assert store.pins.pins()["primary"].version.name == "v1"


def test_without_its_store_it_starts_by_the_pins_last_known(tmp_path: Path) -> None:
    """Never by the file's after a move; once the store is back it moves pins again."""
    with moving_up(tmp_path) as pins:
        assert pins.move().state is MoveState.CONFIRMED
        pins.up.end()
    database, aside = tmp_path / "failsoft.db", tmp_path / "aside.db"
    database.rename(aside)
    database.mkdir()

    with running_up(tmp_path, settings=ONE_ENGINE) as up:
        up.wait_running("primary")
        child = up.child("primary")
        up.wait_said("starting by the moved pins last known: primary = v3")
        assert child is not None
        assert child.version == "v3"
        database.rmdir()
        aside.rename(database)
        with open_store(tmp_path) as store:
            back = Pins(up, store).move("v1")

        assert back.state is MoveState.CONFIRMED
