"""What the mover takes on and notes: its own slots' moves, and no digest of another version."""

import threading
from pathlib import Path

import pytest

from failsoft.config.settings import StoreConfig
from failsoft.pin_records import MoveState
from failsoft.store.store import Store
from tests.serving.supervisor.moves.rig import Pins, moving_up
from tests.serving.supervisor.rig import ONE_ENGINE, running_up

TO_V3 = ONE_ENGINE.replace('primary = "v1"', 'primary = "v3"')


def test_an_old_engine_that_comes_back_tells_nothing_of_the_files_new_version(
    tmp_path: Path,
) -> None:
    """The new one would have kept the old one's digest, and no rollback to it could verify."""
    with moving_up(tmp_path) as pins:
        up, old = pins.up, pins.finder.find("primary")
        stall = pins.stall("v3", MoveState.STARTING)
        up.reload(TO_V3)
        up.wait_for(lambda: pins.store.pins.pins()["primary"].version.name == "v3")
        threading.Event().wait(0.3)  # the settings are gone by once more when the store has them
        killed = up.kill("primary")
        up.wait_for(lambda: is_back_or_replaced(pins, killed))
        stall.unlink()

        up.wait_for(lambda: pins.store.pins.pins()["primary"].version.digest is not None)
        noted = pins.store.pins.pins()["primary"].version.digest

        assert pins.serving()[0] == "v3"
        new = pins.finder.find("primary")
        assert not isinstance(new, str)
        assert not isinstance(old, str)
        assert noted == new.version_digest != old.version_digest
        assert pins.move("v2").state is MoveState.CONFIRMED
        assert pins.move("v3").state is MoveState.CONFIRMED


def is_back_or_replaced(pins: Pins, killed: int) -> bool:
    """Whether the killed engine was started again, or had lost its seat by then."""
    child = pins.up.child("primary")
    if child is None or child.pid in (None, killed):
        return False
    return child.version == "v3" or child.phase == "running"


def has_given_up(pins: Pins) -> bool:
    """Whether the engine that new settings brought is not tried any more."""
    new = pins.up.child("primary.new")
    return new is not None and (new.version, new.phase) == ("v3", "gave_up")


def test_an_engine_of_new_settings_that_was_given_up_keeps_no_slot_from_being_moved(
    tmp_path: Path,
) -> None:
    """Nor does a move that fails leave it out: the settings are tried again then."""
    children = {"v3": {"exits": 1, "says": ["no such layer"]}}
    with moving_up(tmp_path, children=children) as pins:
        pins.up.reload(TO_V3)
        pins.up.wait_for(lambda: has_given_up(pins))

        (tmp_path / "v2.fault").write_text("empty")
        failed = pins.move("v2")
        assert failed.state is MoveState.FAILED
        assert "its reply to a smoke prompt is empty" in (failed.reason or "")
        pins.up.wait_for(lambda: has_given_up(pins))
        (tmp_path / "v2.fault").unlink()

        assert pins.move("v2").state is MoveState.CONFIRMED
        assert pins.serving()[0] == "v2"


def test_a_move_of_a_slot_that_another_machine_serves_is_left_to_it(tmp_path: Path) -> None:
    """On one store each `failsoft up` took on, and failed, what was asked of the other's slots."""
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    settings = f'{ONE_ENGINE}[store]\nurl = "{url}"\n'
    others = settings.replace('rungs = ["primary"]', 'rungs = ["small"]')
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    with (
        running_up(there, settings=others) as up_there,
        running_up(here, settings=settings, moves={"poll_s": 1.0}) as up_here,
        Store(StoreConfig(url=url)) as store,
    ):
        up_there.wait_running("small")
        up_here.wait_running("primary")

        ended = Pins(up_here, store).move()

        assert ended.state is MoveState.CONFIRMED, ended
        assert (ended.owner or "").endswith(str(here / "home"))


def test_a_move_that_nobody_serves_can_be_taken_back(tmp_path: Path) -> None:
    """As when its slot left the settings before it was taken on."""
    with moving_up(tmp_path) as pins:
        move = pins.ask(slot="small")
        pins.store.pins.wish_abort("small", who="bob")

        assert pins.end_of(move).state is MoveState.ABORTED


@pytest.mark.parametrize("state", [MoveState.WARMING, MoveState.DRAINING])
def test_a_move_that_was_ended_in_the_store_puts_everything_back(
    tmp_path: Path, state: MoveState
) -> None:
    """It is no bug: an operator took its supervisor, which hung, for gone."""
    with moving_up(tmp_path) as pins:
        stall = pins.stall("v1" if state is MoveState.DRAINING else "v3", state)
        move = pins.wait(pins.ask(), state)
        ended = pins.store.pins.end_orphan("primary", who="bob")
        stall.unlink()

        pins.up.wait_said("another process" if state is MoveState.WARMING else "failed already")
        pins.up.wait_for(lambda: pins.serving()[0] == "v1")
        assert pins.now(move) == ended
        # Its own: a child has one where a probe gave up under load.
        own = [line for line in pins.up.said if line.startswith("Traceback")]
        assert not own, "\n".join(pins.up.said)
        assert pins.move("v2").state is MoveState.CONFIRMED
