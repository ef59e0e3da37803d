"""``failsoft pin follow-file``: a moved slot goes by its settings file again."""

import json
import os
from pathlib import Path

import pytest

from failsoft.engine.models.store import ModelStore
from failsoft.pin_records import MoveKind, PinnedVersion
from failsoft.serving.supervisor.moves.known_pins import last_known_pins, note_pins
from tests.cli.pin_home import PinHome, Run, prove
from tests.fallback.pins.moves import DIGESTS, ask_for, carry_out, version_of


def say(home: PinHome, name: str) -> None:
    """Have the file pin *name* to the slot primary."""
    text = home.file.read_text()
    line = next(line for line in text.splitlines() if line.startswith("primary ="))
    home.file.write_text(text.replace(line, f'primary = "{name}"'))


def follow(run: Run, *more: str) -> str:
    """Give the slot back; return what was said."""
    done = run("pin", "follow-file", "primary", "--why", "git again", "--who", "bob", *more)
    assert done.code == 0, done.err
    return done.out


def test_a_slot_that_was_moved_follows_its_file_again(home: PinHome, run: Run) -> None:
    """History and show say who gave it back; the file counts, and a rollback goes where it did."""
    prove(home, "v2")
    written = run("pin", "write")

    said = follow(run)
    shown, history = run("pin", "show", "primary").out, run("pin", "history", "primary").out
    again = follow(run)
    now = json.loads(run("pin", "show", "primary", "--json").out)["pins"][0]
    home.store.pins.note_file_pin("primary", version_of(home.settings, "v3", digest=None))
    after = home.store.pins.pins()["primary"]

    assert "pin primary goes by its moves still" in written.err
    assert "`failsoft pin follow-file primary --why TEXT`" in written.err
    assert "pin primary follows failsoft.toml again, which says v2 (222222222222)" in said
    assert "follows the settings file again since 20" in shown
    assert ", by bob: git again" in shown
    assert "`failsoft rollback primary --why TEXT` goes to v1 (111111111111)" in shown
    assert "follow-file" not in shown
    first, by, *_ = history.splitlines()
    assert first.endswith("primary  follows the settings file again  v2 (222222222222)")
    assert by == "  by bob: git again"
    assert "already; nothing to give back" in again
    assert now["is_moved"] is False
    assert now["by_move"]["kind"] == "follow-file"
    assert (after.version.name, after.is_moved) == ("v3", False)


def test_a_rollback_after_it_moves_the_slot_again(home: PinHome, run: Run) -> None:
    """To what held it before the file's last change."""
    prove(home, "v2")
    say(home, "v2")
    follow(run)

    with home.supervised():
        done = run("rollback", "primary", "--why", "worse")

    pin = home.store.pins.pins()["primary"]
    assert done.code == 0, done.err
    assert (pin.version.name, pin.is_moved) == ("v1", True)


def test_show_says_how_where_file_and_move_agree(home: PinHome, run: Run) -> None:
    """Else nobody learns why an edited line does nothing."""
    prove(home, "v2")
    differs = run("pin", "show", "primary").out
    say(home, "v2")

    agrees = run("pin", "show", "primary").out

    assert "follow-file" not in differs
    assert "goes by its moves, not by the file" in agrees
    assert "`failsoft pin follow-file primary --why TEXT`" in agrees


def test_where_the_file_says_something_else_it_is_refused_with_both_ways_out(
    home: PinHome, run: Run
) -> None:
    """Giving a slot back moves nothing."""
    prove(home, "v2")

    done = run("pin", "follow-file", "primary", "--why", "git again")

    assert done.code == 1
    assert "v2 (222222222222) is pinned, failsoft.toml says v1" in done.err
    assert "`failsoft pin write` puts v2 there" in done.err
    assert "`failsoft pin set primary v1 --why TEXT`" in done.err
    assert home.store.pins.pins()["primary"].is_moved


def test_the_same_name_with_another_table_is_something_else(home: PinHome, run: Run) -> None:
    """`pin write` could not put that into words either."""
    prove(home, "v2")
    say(home, "v2")
    home.file.write_text(home.file.read_text().replace("models/v2", "models/other"))

    done = run("pin", "follow-file", "primary", "--why", "git again")

    assert done.code == 1
    assert "means another by it" in done.err
    assert "pin write" not in done.err


def test_bytes_that_became_others_are_something_else(
    home: PinHome, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is the same, the file that it names was overwritten."""
    prove(home, "v2")
    say(home, "v2")

    class Facts:
        class version:  # noqa: N801 - stands for an attribute
            digest = "9" * 64

    def facts(name: str, *, config_path: object, store: ModelStore) -> type[Facts]:
        assert (name, config_path, store.root) == ("v2", Path("failsoft.toml"), home.folder)
        return Facts

    monkeypatch.setattr("failsoft.engine.models.version_facts.version_facts", facts)

    done = run("pin", "follow-file", "primary", "--why", "git again")

    assert done.code == 1
    assert "the files of v2 have become 999999999999" in done.err
    assert home.store.pins.pins()["primary"].is_moved


def test_what_failsoft_up_has_not_read_yet_does_not_count(home: PinHome, run: Run) -> None:
    """It would go by the file that it read last, and move the slot at once."""
    prove(home, "v2")
    say(home, "v2")
    home.publish_supervisor(unlike_file=("primary",))

    refused = run("pin", "follow-file", "primary", "--why", "git again")
    written = run("pin", "write")
    home.publish_supervisor()
    said = follow(run)

    hangup = f"`kill -HUP {os.getpid()}`"
    assert refused.code == 1
    assert f"`failsoft up` has not read {home.file} since it says v2; {hangup}" in refused.err
    assert f"{hangup}, then `failsoft pin follow-file primary --why TEXT`" in written.err
    assert f"once `failsoft up` reads it ({hangup})" in said


def test_a_start_without_the_store_does_not_bring_the_old_move_back(
    home: PinHome, run: Run
) -> None:
    """What is known beside the store forgets the slot, and no other one."""
    prove(home, "v2")
    say(home, "v2")
    url = home.settings.store.url
    version = version_of(home.settings, "v2")
    note_pins(home.folder, url, {"primary": version, "spare": version})

    follow(run)

    assert last_known_pins(home.folder, url) == {"spare": version}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("nope", "--why", "x"), "SLOT"),
        (("primary", "--why", " "), "--why"),
        (("primary", "--why", "x", "--config", "other.toml"), "which `failsoft up` runs by"),
    ],
)
def test_what_does_not_exist_is_a_usage_error(
    home: PinHome, run: Run, command: tuple[str, ...], words: str
) -> None:
    """Exit 2, and nothing is written."""
    prove(home, "v2")
    say(home, "v2")
    (home.folder / "other.toml").write_text(home.file.read_text())
    home.publish_supervisor()

    done = run("pin", "follow-file", *command)

    assert done.code == 2
    assert words in done.err
    assert home.store.pins.pins()["primary"].is_moved


def test_a_broken_file_is_not_followed(home: PinHome, run: Run) -> None:
    """What runs goes by what it read before; what the file will say nobody knows."""
    prove(home, "v2")
    home.publish_supervisor()
    home.file.write_text("[pins\n")

    done = run("pin", "follow-file", "primary", "--why", "git again")

    assert done.code == 2
    assert "failsoft.toml:1" in done.err


def test_while_a_move_is_under_way_it_is_refused(home: PinHome, run: Run) -> None:
    """Exit 1, naming who moves it."""
    prove(home, "v2")
    say(home, "v2")
    home.store.pins.ask(ask_for(version_of(home.settings, "v3")))

    done = run("pin", "follow-file", "primary", "--why", "git again")

    assert done.code == 1
    assert "ann moves it to v3 already" in done.err


def test_an_engine_that_never_told_its_digest_is_no_hindrance(home: PinHome, run: Run) -> None:
    """Where no digest is known the table tells."""
    to = version_of(home.settings, "v2", digest=None)
    carry_out(home.store, ask_for(to))
    say(home, "v2")

    follow(run)

    pin = home.store.pins.pins()["primary"]
    assert pin.version == PinnedVersion(name="v2", settings_json=to.settings_json)
    assert home.store.pins.holding_moves()["primary"].kind is MoveKind.FOLLOW_FILE
    assert DIGESTS["v2"] not in str(pin)
