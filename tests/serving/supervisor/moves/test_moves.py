"""Pins are moved under a real supervisor: what serves, what is kept, what is told."""

import json
from pathlib import Path

from failsoft.config.run_files import is_alive
from failsoft.fallback.discovery import RunningEngine
from failsoft.pin_records import MoveKind, MoveState
from tests.serving.supervisor.moves.rig import moving_up
from tests.serving.supervisor.rig import ONE_ENGINE

BEFORE_THE_SWITCH = ("checking", "starting", "warming", "proving", "smoking")


def test_a_move_brings_the_target_and_a_rollback_the_version_before(tmp_path: Path) -> None:
    """Old and new run side by side; proof, states, events and the children's copy are true."""
    with moving_up(tmp_path) as pins:
        first, old = pins.serving()

        there = pins.move("v3")
        second, new = pins.serving()
        copy = (pins.up.home / "run/processes/settings.toml").read_text()
        back = pins.move("v1", kind=MoveKind.ROLLBACK, accept_unproven=False)
        third, _ = pins.serving()
        pins.up.wait_for(lambda: not is_alive(new))
        left = [path.name for path in (pins.up.home / "run").rglob("*candidate*")]
        log = pins.up.log()
        pins.up.end()
        events = [event.kind for event in pins.up.events()]

    assert (first, second, third) == ("v1", "v3", "v1")
    assert (there.state, back.state) == (MoveState.CONFIRMED, MoveState.CONFIRMED)
    states = [step.state.value for step in there.steps]
    assert states == ["asked", *BEFORE_THE_SWITCH, "switching", "draining", "confirmed"]
    proof = json.loads(there.proof_json or "")
    assert (proof["pid"], proof["digest"]) == (new, there.to.digest)
    assert [reply["version_digest"] for reply in proof["smoke"]] == [there.to.digest] * 3
    assert set(proof["seconds"]) == {*states} - {"confirmed"}
    assert proof["evidence"]["accepted"] is True
    assert json.loads(back.proof_json or "")["evidence"]["words"] == "it held this slot before"
    assert 'primary = "v3"' in copy
    assert left == ["candidates"]
    assert [kind for kind in events if kind.startswith("pin.")] == [
        *("pin.asked", "pin.switched", "pin.confirmed"),
        *("pin.asked", "pin.switched", "pin.confirmed"),
    ]
    readies = [number for number, line in enumerate(log) if line == "primary ready"]
    assert log.index("primary term") > readies[1]
    assert not is_alive(old)


def test_the_engine_that_leaves_finishes_first_and_the_new_one_lives_like_any_other(
    tmp_path: Path,
) -> None:
    """Killed after its move, it is started again, by the settings that all read."""
    with moving_up(tmp_path) as pins:
        pins.stall("v1", MoveState.DRAINING)
        move = pins.ask("v3")
        pins.wait(move, MoveState.DRAINING)
        assert pins.serving()[0] == "v3"
        old = pins.up.child("primary.old")
        assert old is not None
        (tmp_path / "v1.stall").unlink()
        assert pins.end_of(move).state is MoveState.CONFIRMED
        pins.up.wait_back("primary", pins.up.kill("primary"))

        assert pins.serving()[0] == "v3"
        assert pins.up.child("primary.old") is None
        assert pins.up.end() == 0


def test_a_pin_outlives_its_supervisor_and_shows_where_it_differs_from_the_file(
    tmp_path: Path,
) -> None:
    """Also what the file means something else by now: it gets a name of its own."""
    other = ONE_ENGINE.replace("v3.gguf", "other.gguf")
    with moving_up(tmp_path) as pins:
        move = pins.move("v3")
        assert move.state is MoveState.CONFIRMED
        pins.up.reload(other)
        pins.up.wait_said("the settings file says v1")
        pins.up.wait_for(lambda: pins.serving()[0] != "v3")
        kept = pins.serving()
        pins.up.end()
    with moving_up(tmp_path, settings=other) as pins:
        pins.up.wait_said("the settings file says v1 (since ")
        name, _ = pins.serving()
        engine = pins.finder.find("primary")
        pins.up.end()

    assert kept[0].startswith("v3.")
    assert name == kept[0]
    assert isinstance(engine, RunningEngine)
    assert engine.version_digest == move.to.digest
