"""What commands tell of pins and moves, and of a settings file that they took pins away from."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from failsoft.pin_records import MoveState, PinMove
from failsoft.run_state import ChildPhase, ChildState
from tests.cli.pin_home import PinHome, Run, confirm, fail, prove
from tests.fallback.pins.moves import DIGESTS, ask_for, version_of, walk


@pytest.mark.parametrize(
    ("phase", "last_exit", "words"),
    [
        ("starting", None, "nothing: its engine is starting (`failsoft status`)"),
        (
            "gave_up",
            "exit code 1",
            "its engine was given up (`failsoft status`); it ended before: ",
        ),
    ],
)
def test_an_engine_that_failsoft_up_has_in_hand_is_not_to_be_started(
    home: PinHome, run: Run, phase: ChildPhase, last_exit: str | None, words: str
) -> None:
    """It said to start `failsoft up` while that was starting it."""
    child = ChildState(
        name="primary", kind="engine", phase=phase, pid=7, since_ms=0, last_exit=last_exit
    )
    home.publish_supervisor(child)

    assert words in " ".join(run("pin", "show", "primary").out.split())


def test_history_says_which_moves_took_an_unproven_version(home: PinHome, run: Run) -> None:
    """It said so of every move that was allowed to, whether it had to or not."""
    ask = replace(ask_for(version_of(home.settings, "v2")), accept_unproven=True)
    walked = walk(home.store, home.store.pins.ask(ask))
    proof = {"evidence": {"words": "it has no eval", "accepted": True}}
    draining = home.store.pins.advance(
        home.store.pins.switch(walked, proof=proof), MoveState.DRAINING
    )
    home.store.pins.end(draining, MoveState.CONFIRMED, proof=proof)

    assert "(unproven versions were accepted)" in run("pin", "history").out


def test_an_empty_history_says_whose_it_is(home: PinHome, run: Run) -> None:
    """Each settings file may have a store of its own: in another folder it is another one."""
    other = home.folder / "other"
    other.mkdir()
    (other / "failsoft.toml").write_text(home.file.read_text())

    done = run("pin", "history", "--config", "other/failsoft.toml")

    assert done.out == (
        f"no pin was ever noted or moved in the store sqlite:///{other}/failsoft.db\n"
    )


def test_show_tells_everything_of_a_pin(home: PinHome, run: Run) -> None:
    """Who, when, why, proof, what runs, what differs, and where a rollback goes."""
    home.publish_supervisor()
    before = run("pin", "show", "primary")
    confirm(home, _claimed(home, "v2"))
    home.publish_engine("v1")
    home.store.pins.ask(ask_for(version_of(home.settings, "v3")))

    done = run("pin", "show")
    document = json.loads(run("pin", "show", "primary", "--json").out)["pins"][0]
    home.withdraw_supervisor()
    alone = run("pin", "show", "primary")

    assert "nobody carries it out" not in done.out
    assert "but nobody carries it out: start `failsoft up`" in alone.out
    assert ", by the settings file\n" in before.out
    assert "proof: none: the settings file names it" in before.out
    assert "runs: nothing: no engine serves slot primary at this moment" in before.out
    assert done.code == 0
    for words in (
        "primary: v2 (222222222222)",
        "set by ann: try it",
        "proof: process 4711 reported version 222222222222",
        "proof: smoke replies under that version: 12 characters (stop)",
        "WHICH IS NOT THE PINNED ONE",
        "MOVE UNDER WAY: set to v3 (333333333333): asked for",
        "DIFFERS FROM THE FILE: pin primary: v2 is pinned, the settings file says v1",
        "`failsoft rollback primary --why TEXT` goes to v1 (111111111111)",
        "spare: v1 (digest not known yet)",
    ):
        assert words in done.out, done.out
    assert document["version"]["digest"] == DIGESTS["v2"]
    assert document["by_move"]["proof"]["pid"] == 4711
    assert document["under_way"]["state"] == "asked"
    assert document["rollback_to"]["name"] == "v1"
    assert document["running"]["digest"] == DIGESTS["v1"]


def _claimed(home: PinHome, name: str) -> PinMove:
    move = home.store.pins.ask(ask_for(version_of(home.settings, name)))
    claimed = home.store.pins.claim(move.move_id, owner="me")
    assert claimed is not None
    return claimed


def test_history_lists_every_move_the_newest_first(home: PinHome, run: Run) -> None:
    """Also those that came to nothing."""
    prove(home, "v2")
    fail(home, _claimed(home, "v3"))

    done = run("pin", "history", "primary")
    limited = json.loads(run("pin", "history", "--limit", "2", "--json").out)["moves"]

    heads = [line.split("  ")[3] for line in done.out.splitlines() if line[:2] == "20"]
    assert heads == [
        "v2 (222222222222) -> v3 (333333333333)",
        "v1 (111111111111) -> v2 (222222222222)",
        "nothing -> v1 (111111111111)",  # noted without one, learnt since
    ]
    assert " s: checking: its files do not verify" in done.out
    assert [(move["to"]["name"], move["state"]) for move in limited] == [
        ("v3", "failed"),
        ("v2", "confirmed"),
    ]


def test_a_reason_forges_no_line_and_moves_no_cursor(home: PinHome, run: Run) -> None:
    """What somebody else wrote is read on a terminal, months later too."""
    forged = "\x1b[2Jbad\n  confirmed\r\x9b31mred \u202egnp \U0001f469\u200d\U0001f52c"
    who = "ann\n\x1b]0;title\x07"
    with home.supervised():
        run("pin", "set", "primary", "v2", "--why", forged, "--who", who, "--accept-unproven")

    shown = run("pin", "show", "primary").out + run("pin", "history", "primary").out

    assert "by ann ]0;title: [2Jbad confirmed 31mred gnp \U0001f469\u200d\U0001f52c\n" in shown
    assert not set("\x1b\r\x9b\x07\u202e") & set(shown)
    assert run("pin", "set", "primary", "v3", "--why", "\x07\n").code == 2


def test_write_puts_moved_pins_into_the_file_and_keeps_its_comments(
    home: PinHome, run: Run
) -> None:
    """Said line by line; twice is nothing to do."""
    prove(home, "v2")

    done = run("pin", "write")
    again = run("pin", "write")
    shown = run("pin", "show", "primary")

    assert (done.code, again.code) == (0, 0), done.err
    assert "pins.primary = v2 (it was v1)" in done.out
    assert 'primary = "v2"  # the first one' in home.file.read_text()
    assert "nothing to write" in again.out
    assert "DIFFERS" not in shown.out


def test_write_prints_the_table_of_a_version_that_the_file_does_not_name(
    home: PinHome, run: Run
) -> None:
    """A name alone would mean nothing there, or something else."""
    prove(home, "v2")
    home.file.write_text(home.file.read_text().replace("models/v2", "models/other"))
    other = run("pin", "write")
    text = home.file.read_text()
    start, end = text.index("[versions.v2]"), text.index("[versions.v3]")
    home.file.write_text(text[:start] + text[end:])
    gone = run("pin", "write")

    assert (other.code, gone.code) == (1, 1)
    assert "means another version by it" in other.err
    assert "[versions.v2]" in gone.err
    assert f'source = "file:{home.folder}/models/v2"' in gone.err
    assert 'primary = "v1"' in home.file.read_text()


def test_config_check_and_show_say_where_a_move_took_a_pin_away(home: PinHome, run: Run) -> None:
    """Stdout of show stays what the file says, and can be read by programs."""
    quiet = run("config", "check")
    prove(home, "v2")

    check, show = run("config", "check"), run("config", "show", "--json")

    line = "warning: pin primary: v2 is pinned, the settings file says v1 (since "
    assert "v2 is pinned" not in quiet.out
    assert (check.code, show.code) == (0, 0)
    assert line in check.out
    assert "by ann: try it" in check.out
    assert line in show.err
    assert json.loads(show.out)["pins"]["primary"] == "v1"


def test_config_check_makes_no_store_and_needs_none(
    home: PinHome, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is checked where it is written, which may be far from its database."""
    away = home.file.read_text().replace("failsoft.db", "elsewhere.db")
    home.file.write_text(away)
    alone = run("config", "check")
    url = "postgresql://u@127.0.0.1:1/none"
    home.file.write_text(away.replace("sqlite:///elsewhere.db", url))
    silent = run("config", "check")

    assert (alone.code, silent.code) == (0, 0)
    assert not (home.folder / "elsewhere.db").exists()
    assert "cannot be told" not in alone.out
    assert "whether moves changed pins cannot be told" in silent.out


@pytest.mark.parametrize("verb", ["check", "show"])
def test_where_there_is_no_file_config_says_what_is_taken_instead(
    home: PinHome, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """A newcomer has none; a check in the wrong folder must not pass."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    said = run("config", verb)

    assert said.code == 2
    assert "`failsoft up` takes built-in settings without one" in said.err + said.out
