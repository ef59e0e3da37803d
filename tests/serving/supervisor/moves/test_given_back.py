"""A slot that was moved follows its file again: under a running supervisor, and at its start."""

from pathlib import Path

import pytest

from failsoft.cli.pin_give_back import give_back
from failsoft.cli.pin_place import find_place
from failsoft.config.settings import Settings
from failsoft.errors import PinError
from failsoft.pin_records import MoveKind, MoveState, PinnedVersion
from failsoft.serving.supervisor.moves.given_back import GivenBack
from failsoft.serving.supervisor.moves.known_pins import last_known_pins
from failsoft.serving.supervisor.moves.standing import Standing
from failsoft.store import Store
from tests.fallback.pins.moves import ask_for, carry_out
from tests.serving.supervisor.moves.rig import Pins, moving_up, open_store
from tests.serving.supervisor.rig import ONE_ENGINE, running_up


def says(name: str) -> str:
    """The settings with this version for the primary."""
    return ONE_ENGINE.replace('primary = "v1"', f'primary = "{name}"')


def follow(pins: Pins) -> None:
    """Give the slot back as the command does."""
    give_back(find_place(None), pins.store, "primary", who="bob", why="git again")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a supervisor, as commands find it."""
    monkeypatch.setenv("FAILSOFT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_running_supervisor_goes_by_the_file_again_and_a_rollback_moves_anew(
    place: Path,
) -> None:
    """Giving back starts no engine; the next SIGHUP changes the version, a rollback goes back."""
    with moving_up(place) as pins:
        assert pins.move("v3").state is MoveState.CONFIRMED
        (place / "failsoft.toml").write_text(says("v3"))
        with pytest.raises(PinError, match="has not read"):
            follow(pins)
        pins.up.reload(says("v3"))
        before = pins.serving()
        follow(pins)
        pins.up.wait_said("pin primary: follows the settings file again (bob: git again)")
        pins.up.wait_for(
            lambda: last_known_pins(pins.up.home, f"sqlite:///{place}/failsoft.db") == {}
        )
        assert pins.serving() == before

        pins.up.reload(says("v2"))
        pins.up.wait_for(lambda: pins.serving()[0] == "v2")
        pins.up.wait_for(lambda: pins.store.pins.pins()["primary"].version.name == "v2")
        kinds = [move.kind for move in pins.store.pins.history("primary")]
        pins.up.wait_for(lambda: pins.store.pins.pins()["primary"].version.digest is not None)
        back = pins.move("v3", kind=MoveKind.ROLLBACK, accept_unproven=False)

        assert kinds == [MoveKind.FILE, MoveKind.FOLLOW_FILE, MoveKind.SET, MoveKind.FILE]
        assert back.state is MoveState.CONFIRMED, back
        assert pins.serving()[0] == "v3"
        assert pins.store.pins.pins()["primary"].is_moved
        starts = [line for line in pins.up.log() if line.startswith("primary start")]
        assert len(starts) == 4  # v1, v3, v2 and v3 again: none for giving back


def test_a_start_without_its_store_goes_by_the_file_and_not_by_the_old_move(place: Path) -> None:
    """It was given back while no supervisor ran that could forget the move itself."""
    with moving_up(place) as pins:
        assert pins.move("v3").state is MoveState.CONFIRMED
        pins.up.end()
        (place / "failsoft.toml").write_text(says("v3"))
        follow(pins)
    database, aside = place / "failsoft.db", place / "aside.db"
    database.rename(aside)
    database.mkdir()

    with running_up(place, settings=says("v2")) as up:
        up.wait_running("primary")
        up.wait_said("starting by the moved pins last known: none")
        child = up.child("primary")
        database.rmdir()
        aside.rename(database)
        with open_store(place) as store:
            up.wait_for(lambda: store.pins.pins()["primary"].version.name == "v2")
            pin = store.pins.pins()["primary"]

    assert child is not None
    assert child.version == "v2"
    assert not pin.is_moved


def test_the_supervisor_tells_which_slots_are_not_what_it_read(place: Path) -> None:
    """The command must not give a slot back to a file that `failsoft up` has not read."""
    with moving_up(place) as pins:
        assert pins.up.state.unlike_file == ()
        assert pins.move("v3").state is MoveState.CONFIRMED
        pins.up.wait_for(lambda: pins.up.state.unlike_file == ("primary",))
        pins.up.reload(says("v3"))
        pins.up.wait_for(lambda: pins.up.state.unlike_file == ())


def held(store: Store, name: str, *, is_moved: bool = True) -> None:
    """Have a move pin *name* to the slot primary, and give it back unless it *is_moved*."""
    version = PinnedVersion(name=name, settings_json='{"source": "file:/v.gguf"}')
    carry_out(store, ask_for(version))
    if not is_moved:
        seen = store.pins.pins()["primary"]
        store.pins.follow_file("primary", version, who="bob", why="git", seen=seen)


@pytest.mark.parametrize("is_read_first", [False, True])
def test_it_is_told_once_though_the_store_was_read_in_between(
    tmp_path: Path, is_read_first: bool
) -> None:
    """After a SIGHUP the store is read too, and what that took in was never told."""
    said, learnt = [], []
    standing = Standing(Settings())
    given_back = GivenBack(
        standing, learn=lambda: learnt.append(1), say=lambda words, _tone: said.append(words)
    )
    with open_store(tmp_path) as store:
        held(store, "v2")
        standing.take_pins(store.pins.pins().values())
        given_back.on_holding(store.pins.holding_moves())
        held(store, "v3", is_moved=False)
        if is_read_first:
            standing.take_pins(store.pins.pins().values())

        for _ in range(2):
            given_back.on_holding(store.pins.holding_moves())

    assert said == ["pin primary: follows the settings file again (bob: git)"]
    assert len(learnt) == (0 if is_read_first else 1)


def test_what_was_given_back_before_the_start_is_no_news(tmp_path: Path) -> None:
    """Else each start would tell it."""
    said: list[str] = []
    with open_store(tmp_path) as store:
        held(store, "v2", is_moved=False)
        standing = Standing(Settings())
        standing.take_pins(store.pins.pins().values())
        given_back = GivenBack(
            standing,
            learn=lambda: said.append("learn"),
            say=lambda words, _tone: said.append(words),
        )

        for _ in range(2):
            given_back.on_holding(store.pins.holding_moves())

    assert said == []
