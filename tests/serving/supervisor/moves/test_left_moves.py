"""A move is rolled back between its switch and its end: nobody waits, and nothing is cut."""

import os
import signal
import threading
from pathlib import Path

import pytest

from failsoft.config.run_files import is_alive
from failsoft.pin_records import MoveKind, MoveState, PinMove
from tests.serving.supervisor.moves.rig import Pins, moving_up, open_store
from tests.serving.supervisor.rig import ONE_ENGINE, running_up


def drained(pins: Pins, name: str = "v3") -> tuple[PinMove, Path, int]:
    """A move that waits for its old engine to drain, what keeps that, and the old engine."""
    _, old = pins.serving()
    stall = pins.stall(pins.store.pins.pins()["primary"].version.name, MoveState.DRAINING)
    return pins.wait(pins.ask(name), MoveState.DRAINING), stall, old


def test_a_drain_goes_on_beside_the_rollback(tmp_path: Path) -> None:
    """Both moves are confirmed while the old engine still has calls; those are not cut."""
    with moving_up(tmp_path) as pins:
        first, stall, old = drained(pins)
        pins.roll_back(first, accept_unproven=False)
        ended = pins.end_of(first)
        rollback = pins.after(first)
        assert rollback is not None
        also = pins.stall("v3", MoveState.DRAINING)
        pins.wait(rollback, MoveState.DRAINING)
        pins.up.wait_for(lambda: pins.up.child("primary.old2") is not None)
        names = [child.name for child in pins.up.state.children]
        also.unlink()
        rolled = pins.end_of(rollback)
        serving = pins.serving()

        assert (ended.state, rolled.state) == (MoveState.CONFIRMED, MoveState.CONFIRMED), rolled
        assert (rolled.kind, rolled.who, rolled.why) == ("rollback", "bob", "callers complain")
        assert (serving[0], serving[1] != old) == ("v1", True)
        assert is_alive(old)
        assert pins.up.child("primary.old") is not None
        assert len(names) == len(set(names)), "two engines leave at once"
        assert "primary.old" in names
        assert any("bob rolls it back to v1: callers complain" in line for line in pins.up.said)
        stall.unlink()
        pins.up.wait_for(lambda: not is_alive(old))
        assert "primary gone" in pins.up.log()  # by itself, and not killed


def test_an_engine_that_hangs_after_the_switch_is_left_within_seconds(tmp_path: Path) -> None:
    """It was waited for up to 15 minutes. Its engine serves on until the old version is back."""
    with moving_up(tmp_path, moves={"hurried_s": 0.5}) as pins:
        first, stall, _ = drained(pins)
        hang = pins.stall("v3", MoveState.PROVING)
        stall.unlink()
        pins.up.wait_for(lambda: pins.up.child("primary.old") is None)
        pins.roll_back(first)
        ended = pins.end_of(first)

        assert ended.state is MoveState.FAILED
        assert ended.reason == (
            "draining: it did not prove itself within 0.5 s after bob rolled it back; "
            "the pin went back"
        )
        assert pins.after(first) is None
        pins.up.wait_for(lambda: pins.serving()[0] == "v1")
        assert pins.store.pins.open_moves() == []
        hang.unlink()
        assert pins.move().state is MoveState.CONFIRMED


def test_a_rollback_to_another_version_waits_until_the_pin_is_back(tmp_path: Path) -> None:
    """An engine that replaces another made the move fail that came at that moment."""
    with moving_up(tmp_path, moves={"hurried_s": 0.3}) as pins:
        assert pins.move("v2").state is MoveState.CONFIRMED
        first, stall, _ = drained(pins)
        hang = pins.stall("v3", MoveState.PROVING)
        stall.write_text("starting")  # v2 takes its time to be back
        pins.roll_back(first, "v1", accept_unproven=True)
        ended = pins.end_of(first)
        rollback = pins.after(first)
        assert rollback is not None
        pins.wait(rollback, MoveState.CHECKING)
        threading.Event().wait(0.5)
        waits = pins.now(rollback).state
        stall.unlink()

        assert (ended.state, waits) == (MoveState.FAILED, MoveState.CHECKING)
        assert pins.end_of(rollback).state is MoveState.CONFIRMED
        assert pins.serving()[0] == "v1"
        hang.unlink()


def test_an_engine_that_is_not_ready_after_the_switch_is_not_waited_for(tmp_path: Path) -> None:
    """It serves nobody: the old version starts in its place; a rollback to another one follows."""
    with moving_up(tmp_path, moves={"hurried_s": 60.0}) as pins:
        assert pins.move("v2").state is MoveState.CONFIRMED
        first, stall, _ = drained(pins)
        hang = pins.stall("v3", MoveState.STARTING)
        pins.up.kill("primary")
        pins.up.wait_for(lambda: getattr(pins.up.child("primary"), "phase", "") == "starting")
        pins.roll_back(first, "v1", accept_unproven=True)
        ended = pins.end_of(first)
        stall.unlink()  # or v2, which leaves in turn, is waited for
        rollback = pins.after(first)
        assert rollback is not None

        assert ended.state is MoveState.FAILED
        assert "draining: it was not ready when bob rolled it back" in (ended.reason or "")
        assert rollback.left is not None
        assert (rollback.left.name, rollback.to.name) == ("v2", "v1")
        assert pins.end_of(rollback).state is MoveState.CONFIRMED
        assert pins.serving()[0] == "v1"
        hang.unlink()


def test_the_wish_outlives_its_supervisor(tmp_path: Path) -> None:
    """Killed before it saw it: the next one does not even wait for the new engine to load."""
    with moving_up(tmp_path) as pins:
        first, stall, _ = drained(pins)
        os.kill(pins.up.popen.pid, signal.SIGSTOP)
        pins.roll_back(first)
        pins.up.popen.kill()
        pins.up.popen.wait(10)
        stall.unlink()
    children = {"v3": {"start_s": 30.0}}
    with (
        running_up(tmp_path, settings=ONE_ENGINE, children=children) as up,
        open_store(tmp_path) as store,
    ):
        pins = Pins(up, store)
        ended = pins.end_of(first)

        assert ended.state is MoveState.FAILED
        assert "it was not ready when bob rolled it back; the pin went back" in (ended.reason or "")
        assert pins.serving()[0] == "v1"
        assert store.pins.open_moves() == []


def test_a_rollback_waits_for_memory_that_the_leaving_engine_is_about_to_free(
    tmp_path: Path,
) -> None:
    """It said to use `--swap stop-first`, under which callers get nothing meanwhile."""
    with moving_up(tmp_path) as pins:
        first, stall, _ = drained(pins)
        available = tmp_path / "v1.available"
        available.write_text("10")
        pins.roll_back(first)
        pins.end_of(first)
        rollback = pins.after(first)
        assert rollback is not None
        pins.wait(rollback, MoveState.CHECKING)
        threading.Event().wait(1.0)
        waits = pins.now(rollback).state
        available.write_text("2000")
        stall.unlink()

        assert waits is MoveState.CHECKING
        assert pins.end_of(rollback).state is MoveState.CONFIRMED


def test_a_bug_after_the_switch_is_gone_on_after(tmp_path: Path) -> None:
    """The move stayed open, and every later one was refused, until `failsoft up` was started."""
    with moving_up(tmp_path, bugs={"MoveRun._drain": 1}) as pins:
        ended = pins.move()

        assert ended.state is MoveState.CONFIRMED, ended
        assert pins.serving()[0] == "v3"
        assert any("a bug broke off the move of pin primary" in line for line in pins.up.said)
        assert pins.move("v1", kind=MoveKind.ROLLBACK).state is MoveState.CONFIRMED


@pytest.mark.parametrize("swap", ["beside", "stop-first"])
def test_a_bug_between_the_switch_and_the_seat_costs_no_caller_his_engine(
    tmp_path: Path, swap: str
) -> None:
    """The engine on trial is found by ladders by then: it stays until its successor is ready."""
    with moving_up(tmp_path, bugs={"Candidate.install": 1}) as pins:
        move = pins.ask(swap=swap)
        pins.up.wait_said("a bug broke off")
        found = pins.finder.find("primary")
        ended = pins.end_of(move)

        assert not isinstance(found, str), found
        assert ended.state is MoveState.CONFIRMED, ended
        assert pins.serving()[0] == "v3"
        pins.up.wait_for(lambda: pins.up.child("primary.new") is None)
        assert pins.move("v1", kind=MoveKind.ROLLBACK).state is MoveState.CONFIRMED


@pytest.mark.parametrize("swap", ["beside", "stop-first"])
def test_a_bug_before_the_switch_undoes_the_move(tmp_path: Path, swap: str) -> None:
    """The old engine serves, or is started again, and a retry works."""
    with moving_up(tmp_path, bugs={"MoveRun._put_back": 1}) as pins:
        stall = pins.stall("v3", MoveState.WARMING)
        move = pins.ask(swap=swap)
        pins.wait(move, MoveState.WARMING)
        pins.store.pins.wish_abort("primary", who="bob")
        ended = pins.end_of(move)
        stall.unlink()

        assert ended.state is MoveState.UNDONE
        assert ended.reason == (
            "a bug in failsoft broke it off while warming; the pin was not moved, ask again"
        )
        assert pins.serving()[0] == "v1"
        assert pins.up.child("primary.new") is None
        assert pins.move().state is MoveState.CONFIRMED


def test_a_bug_that_stays_ends_the_move_in_the_store(tmp_path: Path) -> None:
    """Three tries; then the pin goes back, and its engine with it."""
    with moving_up(tmp_path, bugs={"MoveRun._drain": 1, "MoveRun._confirm": 2}) as pins:
        ended = pins.move()

        assert ended.state is MoveState.FAILED
        assert ended.reason == (
            "switching: a bug in failsoft broke it off again and again: "
            "RuntimeError('bug in MoveRun._confirm'); the pin went back"
        )
        pins.up.wait_for(lambda: pins.serving()[0] == "v1")
        assert pins.move().state is MoveState.CONFIRMED
