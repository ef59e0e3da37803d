"""Moves that something goes wrong with: what serves, how they end, and that a retry works."""

import hashlib
import json
import sqlite3
import threading
from pathlib import Path

import pytest

from failsoft.errors import PinConflictError, PinError
from failsoft.pin_records import EvalScore, MoveState
from tests.serving.supervisor.moves.rig import Pins, moving_up
from tests.serving.supervisor.rig import ONE_ENGINE

WITH_ENGINE = (MoveState.STARTING, MoveState.WARMING, MoveState.PROVING, MoveState.SMOKING)


def wait_candidate(pins: Pins) -> None:
    """Wait until the engine on trial has a process."""
    pins.up.wait_for(lambda: (new := pins.up.child("primary.new")) is not None and bool(new.pid))


def test_the_new_engine_is_killed_in_each_state(tmp_path: Path) -> None:
    """Before the switch the old engine serves on; after it the new one comes back."""
    with moving_up(tmp_path) as pins:
        before = pins.serving()
        for state in WITH_ENGINE:
            stall = pins.stall("v3", state)
            move = pins.ask()
            pins.wait(move, state)
            wait_candidate(pins)
            pins.up.kill("primary.new")
            ended = pins.end_of(move)
            stall.unlink()
            assert ended.state is MoveState.FAILED
            assert f"{state.value}: the new engine ended: exit -9" in (ended.reason or "")
            assert pins.serving() == before

        stall = pins.stall("v1", MoveState.DRAINING)
        move = pins.ask()
        pins.wait(move, MoveState.DRAINING)
        pins.serving()
        pins.up.wait_back("primary", pins.up.kill("primary"))
        stall.unlink()

        assert pins.end_of(move).state is MoveState.CONFIRMED
        assert pins.serving()[0] == "v3"


def test_an_abort_is_taken_in_each_state_before_the_switch(tmp_path: Path) -> None:
    """After it, it is refused with what to do instead; of two who ask the first wins."""
    with moving_up(tmp_path) as pins:
        before = pins.serving()
        for state in (MoveState.CHECKING, *WITH_ENGINE):
            stall = pins.stall("v3", state)
            move = pins.ask()
            pins.wait(move, state)
            with pytest.raises(PinConflictError, match="ann moves it to v3"):
                pins.ask("v2", who="bob")
            pins.store.pins.wish_abort("primary", who="bob")
            ended = pins.end_of(move)
            stall.unlink()
            assert (ended.state, ended.reason) == (MoveState.ABORTED, "bob took it back")
            assert pins.serving() == before
            pins.up.wait_for(lambda: pins.up.child("primary.new") is None)

        stall = pins.stall("v1", MoveState.DRAINING)
        move = pins.ask()
        pins.wait(move, MoveState.DRAINING)
        with pytest.raises(PinError, match="failsoft rollback"):
            pins.store.pins.wish_abort("primary", who="bob")
        stall.unlink()

        assert pins.end_of(move).state is MoveState.CONFIRMED


def test_what_the_check_finds_ends_a_move_before_anything_is_started(tmp_path: Path) -> None:
    """Damaged files, too little memory, no evidence: each says what to do, and then it works."""
    children = {"check v2": {"needs_bytes": 5000}}
    with moving_up(tmp_path, children=children) as pins:
        before = pins.serving()
        problem = tmp_path / "v3.problem"
        problem.write_text("v3.gguf is damaged; run `failsoft models add v3`")
        damaged = pins.move("v3")
        problem.unlink()
        unproven = pins.move("v3", accept_unproven=False)
        large = pins.move("v2")
        starts = [line for line in pins.up.log() if line.startswith("primary start")]

        assert {move.state for move in (damaged, unproven, large)} == {MoveState.FAILED}
        assert damaged.reason == "checking: v3.gguf is damaged; run `failsoft models add v3`"
        assert "`--accept-unproven`" in (unproven.reason or "")
        assert "`--swap stop-first`" in (large.reason or "")
        assert len(starts) == 1
        assert pins.serving() == before

        told = [json.loads(e.detail_json) for e in pins.store.reader.events()]
        assert (damaged.why, damaged.reason) in [(d.get("why"), d.get("reason")) for d in told]

        digest = unproven.to.digest or damaged.to.digest
        assert digest is None, "only what is started is known by its digest"
        alone = pins.move("v2", swap="stop-first")
        assert alone.state is MoveState.CONFIRMED
        # A first reference takes a minute, in which no engine would have served.
        assert "not compared: it is the first of this version" in (alone.proof_json or "")
        assert pins.serving()[0] == "v2"


def test_an_eval_is_evidence(tmp_path: Path) -> None:
    """One that is not worse takes the place of an operator's word."""
    with moving_up(tmp_path) as pins:
        stall = pins.stall("v3", MoveState.STARTING)
        move = pins.ask()
        digest = pins.wait(move, MoveState.STARTING).to.digest
        assert digest is not None
        pins.store.pins.wish_abort("primary", who="ann")
        pins.end_of(move)
        stall.unlink()
        score = EvalScore(version_digest=digest, eval_set="faq", at_ms=1, score=0.9, num_samples=9)
        pins.store.eval_scores.add(score)

        assert pins.move(accept_unproven=False).state is MoveState.CONFIRMED


def test_an_engine_that_is_not_what_was_checked_or_says_nothing_is_refused(tmp_path: Path) -> None:
    """Its own report, the head of each reply and the text each count."""
    reasons = {
        "weights": "proving: its weights are not those that this version had: mean 9, limit 1",
        "models": "proving: it runs version 000000000000…, not the ",
        "header": "smoking: it runs version 000000000000…, not the ",
        "empty": "smoking: its reply to a smoke prompt is empty",
    }
    with moving_up(tmp_path) as pins:
        before = pins.serving()
        for fault, reason in reasons.items():
            (tmp_path / "v3.fault").write_text(fault)
            ended = pins.move()
            assert ended.state is MoveState.FAILED
            assert (ended.reason or "").startswith(reason)
        (tmp_path / "v3.fault").unlink()

        assert pins.serving() == before
        assert pins.move().state is MoveState.CONFIRMED


def test_a_start_that_hangs_is_given_up_and_under_stop_first_the_old_engine_comes_back(
    tmp_path: Path,
) -> None:
    """The state in between is restoring; the engine that hung is gone."""
    with moving_up(tmp_path, moves={"starting_s": 3.0}) as pins:
        old = pins.serving()
        pins.stall("v3", MoveState.STARTING)
        beside = pins.move()
        assert pins.serving() == old
        first = pins.move(swap="stop-first")
        again = pins.serving()

        assert (beside.state, first.state) == (MoveState.FAILED, MoveState.FAILED)
        assert "starting: it took longer than 3 s" in (beside.reason or "")
        states = [step.state.value for step in first.steps]
        assert states == ["asked", "checking", "stopping", "starting", "restoring", "failed"]
        assert (again[0], again[1] != old[1]) == ("v1", True)


def test_an_old_engine_that_still_stops_is_not_started_beside_itself(tmp_path: Path) -> None:
    """`stop-first` is for machines whose memory does not hold two engines."""
    with moving_up(tmp_path) as pins:
        first = pins.serving()
        stall = pins.stall("v1", MoveState.DRAINING)
        move = pins.ask(swap="stop-first")
        pins.wait(move, MoveState.STOPPING)
        pins.store.pins.wish_abort("primary", who="bob")
        pins.wait(move, MoveState.RESTORING)
        threading.Event().wait(0.5)  # an engine that is started now would have said so
        starts = sum(line.startswith("primary start") for line in pins.up.log())
        stall.unlink()

        assert pins.end_of(move).state is MoveState.ABORTED
        assert starts == 1
        assert pins.serving()[0] == "v1"
        assert pins.serving() != first


def test_the_old_engine_dies_meanwhile_and_comes_back_as_what_it_was(tmp_path: Path) -> None:
    """Even where the target has its name: the file means something else by it by now."""
    with moving_up(tmp_path) as pins:
        stall = pins.stall("v1", MoveState.SMOKING)
        engine = pins.finder.find("primary")
        other = pins.version("v1", ONE_ENGINE.replace("v1.gguf", "other.gguf"))
        told = pins.up.folder / f"{named(pins, other.settings_json)}.stall"
        stall.rename(told)
        move = pins.ask(to=other)
        pins.wait(move, MoveState.SMOKING)
        pins.up.wait_back("primary", pins.up.kill("primary"))
        pins.serving()
        back = pins.finder.find("primary")
        told.unlink()

        assert pins.end_of(move).state is MoveState.CONFIRMED
        assert getattr(engine, "version_digest", 1) == getattr(back, "version_digest", 2)
        assert pins.serving()[0] == told.stem


def named(pins: Pins, settings_json: str) -> str:
    """The name that v1 gets where the file means something else by it."""
    return f"v1.{hashlib.sha256(settings_json.encode()).hexdigest()[:12]}"


def test_settings_that_are_read_again_leave_a_slot_under_move_alone(tmp_path: Path) -> None:
    """They are taken at once, and hold for the slot too once the move is over."""
    with moving_up(tmp_path) as pins:
        old = pins.serving()
        stall = pins.stall("v3", MoveState.SMOKING)
        move = pins.ask()
        pins.wait(move, MoveState.SMOKING)
        pins.up.reload(ONE_ENGINE.replace('primary = "v1"', 'primary = "v2"') + "deadline_s = 7\n")
        assert pins.serving() == old
        pins.store.pins.wish_abort("primary", who="ann")
        stall.unlink()

        assert pins.end_of(move).state is MoveState.ABORTED
        pins.up.wait_for(lambda: pins.serving()[0] == "v2")
        copy = (pins.up.home / "run/processes/settings.toml").read_text()
        assert "deadline_s = 7" in copy


def test_settings_that_mean_another_version_by_the_targets_name_do_not_stop_its_move(
    tmp_path: Path,
) -> None:
    """It gets a name of its own, which the settings that the new engine read did not have."""
    with moving_up(tmp_path) as pins:
        stall = pins.stall("v3", MoveState.CHECKING)
        move = pins.ask()
        pins.wait(move, MoveState.CHECKING)
        pins.up.wait_for((pins.up.home / "run/processes/settings.candidate.primary.toml").exists)
        pins.up.reload(ONE_ENGINE.replace("v3.gguf", "other.gguf"))
        stall.unlink()

        ended = pins.end_of(move)

        assert ended.state is MoveState.CONFIRMED, ended
        assert pins.serving()[0].startswith("v3.")


def test_a_store_that_refuses_for_long_ends_a_move_and_for_short_does_not(tmp_path: Path) -> None:
    """The end is written once it takes it; what serves never noticed."""
    settings = ONE_ENGINE + "[store]\nbusy_timeout_s = 0.1\n"
    with moving_up(tmp_path, settings=settings, moves={"store_s": 1.0}) as pins:
        old = pins.serving()
        for seconds, state in ((0.4, MoveState.CONFIRMED), (4.0, MoveState.FAILED)):
            version = "v3" if state is MoveState.CONFIRMED else "v2"
            stall = pins.stall(version, MoveState.SMOKING)
            move = pins.ask(version)
            pins.wait(move, MoveState.SMOKING)
            blocker = sqlite3.connect(tmp_path / "failsoft.db", isolation_level=None)
            blocker.execute("BEGIN IMMEDIATE")
            stall.unlink()
            held = threading.Event()
            held.wait(seconds)
            blocker.execute("ROLLBACK")
            blocker.close()
            assert pins.end_of(move).state is state

        assert "mend the store" in (pins.now(move).reason or "")
        assert pins.serving()[0] == "v3" != old[0]
        assert any("pins cannot be moved for now" in line for line in pins.up.said)


def test_a_stop_takes_back_what_has_not_switched(tmp_path: Path) -> None:
    """Nothing is left, and the exit code is that of any stop."""
    with moving_up(tmp_path) as pins:
        pins.stall("v3", MoveState.WARMING)
        move = pins.ask()
        pins.wait(move, MoveState.WARMING)

        assert pins.up.end() == 0

        assert pins.now(move).state is MoveState.UNDONE
        left = {path.name for path in (pins.up.home / "run").rglob("*") if path.is_file()}
        assert left == {"supervisor.lock"}
