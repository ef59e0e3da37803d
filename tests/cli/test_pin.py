"""``failsoft pin`` and ``failsoft rollback`` as an operator runs them, beside a stand-in."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from failsoft.cli.pin_follow import GONE_S, UNTAKEN_S, Follower
from failsoft.errors import PinError
from failsoft.pin_records import EvalScore, MoveKind, MoveState
from tests.cli.pin_home import PinHome, Run, fail, prove, wait_for_abort
from tests.fallback.fake_time import FakeTime
from tests.fallback.pins.moves import DIGESTS, ask_for, version_of, walk

WHY = ("--why", "callers complain")


def test_a_set_is_followed_state_by_state_and_ends_with_its_proof(home: PinHome, run: Run) -> None:
    """Plain lines on stderr, the end on stdout, exit 0."""
    with home.supervised():
        done = run("pin", "set", "primary", "v2", "--who", "ann", *WHY)

    states = [line.split()[2] for line in done.err.splitlines() if " s  " in line]
    assert done.code == 0, done.err
    assert states == [
        "asked", "checking", "starting", "warming", "proving", "smoking", "switching", "draining",
        "confirmed",
    ]  # fmt: skip
    assert "process 4711 reported version 222222222222 of itself" in done.err
    assert done.out.startswith("pin primary runs v2 (222222222222): confirmed after ")
    (move, *_) = home.store.pins.history("primary")
    assert (move.kind, move.who, move.why) == ("set", "ann", "callers complain")


def test_a_rollback_needs_one_command_and_goes_to_what_was_there_before(
    home: PinHome, run: Run
) -> None:
    """And a second one does not bring the bad version back."""
    prove(home, "v2")

    with home.supervised():
        done = run("rollback", "primary", *WHY)
        again = run("rollback", "primary", *WHY)

    assert (done.code, home.store.pins.pins()["primary"].version.name) == (0, "v1"), done.err
    (move, *_) = home.store.pins.history("primary")
    assert (move.kind, move.to.digest) == (MoveKind.ROLLBACK, DIGESTS["v1"])
    assert "@" in move.who
    assert again.code == 1
    assert "nothing was pinned before" in again.err
    assert "--to" in again.err


@pytest.mark.parametrize("wanted", ["v1", "1111", DIGESTS["v1"].upper()])
def test_a_rollback_may_name_a_version_or_the_beginning_of_a_digest(
    home: PinHome, run: Run, wanted: str
) -> None:
    """Out of all that ever held the slot."""
    prove(home, "v2", "v3")

    with home.supervised():
        done = run("rollback", "primary", "--to", wanted, *WHY)

    assert (done.code, home.store.pins.pins()["primary"].version.name) == (0, "v1"), done.err


def test_a_version_that_the_file_dropped_can_be_rolled_back_to(home: PinHome, run: Run) -> None:
    """The history keeps its table; that the file is broken is no obstacle either."""
    prove(home, "v2")
    home.publish_supervisor()
    text = home.file.read_text()
    start, end = text.index("[versions.v1]"), text.index("[versions.v2]")
    home.file.write_text(text[:start] + text[end:])  # pins v1, which is nowhere now

    done = run("rollback", "primary", "--no-wait", *WHY)

    move = home.store.pins.open_move("primary")
    assert (done.code, done.out[:6]) == (0, "asked;"), done.err
    assert "warning:" in done.err
    assert move is not None
    assert (move.to.name, move.to.digest) == ("v1", DIGESTS["v1"])
    assert json.loads(move.to.settings_json)["source"] == f"file:{home.folder}/models/v1"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["pin", "set", "primry", "v2", *WHY], 2, 'did you mean "primary"?'),
        (["pin", "set", "spare", "v2", *WHY], 2, "no ladder uses such a slot"),
        (["pin", "set", "primary", "v22", *WHY], 2, 'did you mean "v2"?'),
        (["pin", "set", "primary", "v2", "--why", "  "], 2, "a reason in a few words"),
        (["pin", "set", "primary", "v2"], 2, "--why"),
        (["pin", "set", "primary", "v2", "--swap", "no", *WHY], 2, "stop-first"),
        (["rollback", "primry", *WHY], 2, 'did you mean "primary"?'),
        (["rollback", "primary", "--to", "v3", *WHY], 2, "known: v1 (111111111111)"),
        (["rollback", "primary", "--to", "11", *WHY], 2, "known: v1 (111111111111)"),
        (["pin", "show", "primry"], 2, 'did you mean "primary"?'),
        (["pin", "history", "primry"], 2, 'did you mean "primary"?'),
        (["pin", "set", "primary", "3333", *WHY], 2, "`failsoft rollback SLOT --to DIGEST`"),
        (["rollback", "primary", "--to", "111", *WHY], 2, "at least 4 digits of its digest"),
        (["pin", "abort", "primry"], 2, 'did you mean "primary"? known: primary, spare'),
        (["pin", "abort", "primary"], 1, "no move of pin primary is under way\n"),
    ],
)
def test_what_cannot_be_is_refused_with_the_next_step(
    home: PinHome, run: Run, arguments: list[str], code: int, words: str
) -> None:
    """2 is the user's to mend; nothing was asked."""
    home.publish_supervisor()

    done = run(*arguments)

    assert (done.code, words in done.err) == (code, True), done.err
    assert home.store.pins.open_moves() == []


def test_without_failsoft_up_nothing_is_asked(home: PinHome, run: Run) -> None:
    """Nobody would carry it out."""
    done = run("pin", "set", "primary", "v2", *WHY)
    aborted = run("pin", "abort", "primary")

    shown = run("pin", "show")
    assert f"no `failsoft up` runs on {home.folder} (one that another user" in shown.out
    for refused in (done, aborted):
        assert refused.code == 1
        assert f"no `failsoft up` runs on {home.folder} (one that another user" in refused.err
        assert "FAILSOFT_HOME" in refused.err
    assert home.store.pins.open_moves() == []


def test_what_is_pinned_already_is_no_move(home: PinHome, run: Run) -> None:
    """It is said, and fine."""
    with home.supervised():
        set_again = run("pin", "set", "primary", "v1", *WHY)
        back_again = run("rollback", "primary", "--to", "v1", *WHY)

    assert (set_again.code, back_again.code) == (0, 0)
    assert set_again.out == "pin primary is at v1 (111111111111) already; nothing to move\n"
    assert len(home.store.pins.history("primary")) == 1


def test_a_failed_move_says_why_what_runs_and_exits_1(home: PinHome, run: Run) -> None:
    """The old version serves."""
    with home.supervised(fail):
        done = run("pin", "set", "primary", "v2", *WHY)

    assert done.code == 1
    assert "its files do not verify; look with `failsoft versions verify`" in done.err
    assert "it runs v1 (111111111111) as before" in done.err
    assert done.out == ""


def test_of_two_operators_the_second_is_told_of_the_first(home: PinHome, run: Run) -> None:
    """Who, where to, and how far it is."""
    home.publish_supervisor()
    home.store.pins.ask(ask_for(version_of(home.settings, "v3")))

    second = run("pin", "set", "primary", "v2", *WHY)
    same = run("pin", "set", "primary", "v1", *WHY)
    back = run("rollback", "primary", *WHY)  # whose target is not worth a word yet

    for done in (second, same, back):
        assert done.code == 1
        assert "ann" in done.err
        assert "v3" in done.err
        assert "failsoft pin abort primary" in done.err


@pytest.mark.parametrize(
    ("rungs", "words"),
    [
        ('["primary", "cache"]', "ladder chat has kept replies only, and all other calls FAIL"),
        ('["primary"]', "ladder chat has nothing else, and all its calls FAIL"),
        ('["primary", "remote"]', "ladder chat is answered by remote, or not at all where they"),
    ],
)
def test_stop_first_says_who_answers_meanwhile(
    home: PinHome, run: Run, rungs: str, words: str
) -> None:
    """It stopped the only engine of a ladder without a word: every call failed for minutes."""
    text = home.file.read_text().replace('["primary", "cache"]', rungs)
    remote = '[endpoints.remote]\nurl = "http://127.0.0.1:1/v1"\nmodel = "m"\n'
    home.file.write_text(text + remote)
    home.publish_supervisor()

    beside = run("pin", "set", "primary", "v2", "--no-wait", *WHY)
    home.store.pins.wish_abort("primary", who="ann")
    (move,) = home.store.pins.open_moves()
    home.store.pins.end(move, MoveState.ABORTED, reason="ann took it back")
    first = run("pin", "set", "primary", "v2", "--swap", "stop-first", "--no-wait", *WHY)

    assert (beside.code, first.code) == (0, 0), first.err
    assert "warning" not in beside.err
    assert words in first.err
    assert "`failsoft pin abort primary`" in first.err


def test_an_abort_takes_the_move_back(home: PinHome, run: Run) -> None:
    """The one who asked is told by whom, and exits 1; the one who aborts exits 0."""
    with home.supervised(wait_for_abort):
        asked = run("pin", "set", "primary", "v2", "--no-wait", *WHY)
        aborted = run("pin", "abort", "primary", "--who", "bob")

    assert (asked.code, aborted.code) == (0, 0), aborted.err
    assert "aborted" in aborted.out
    assert "it runs v1 (111111111111) as before" in aborted.out
    (move, *_) = home.store.pins.history("primary")
    assert (move.state, move.abort_by) == (MoveState.ABORTED, "bob")


@pytest.mark.parametrize(
    ("is_switched", "state", "back"),
    [(False, MoveState.UNDONE, ""), (True, MoveState.FAILED, "; the pin went back")],
)
def test_a_move_of_a_machine_that_is_gone_can_be_ended(
    home: PinHome, run: Run, is_switched: bool, state: MoveState, back: str
) -> None:
    """On a store that several share; else it would refuse every later move of the slot."""
    pins = home.store.pins
    move = pins.claim(
        pins.ask(ask_for(version_of(home.settings, "v3"))).move_id, owner="gone:/srv/app"
    )
    assert move is not None
    move = pins.advance(move, MoveState.CHECKING)
    if is_switched:
        move = pins.switch(move, proof={})
    home.publish_supervisor()

    done = run("pin", "abort", "primary", "--orphaned", "--who", "bob")

    assert done.code == 0, done.err
    ended = pins.history("primary")[0]
    was = "switching" if is_switched else "checking"
    assert ended.state is state
    assert ended.reason == f"bob ended it while {was}: gone:/srv/app had it{back}"
    assert ended.reason in done.out
    assert pins.pins()["primary"].version.name == "v1"
    assert run("pin", "set", "primary", "v2", "--no-wait", *WHY).code == 0


def test_a_move_is_no_orphan_while_its_own_failsoft_up_runs(home: PinHome, run: Run) -> None:
    """An abort asks that one; to end the move under its hands would be a lie in the history."""
    pins = home.store.pins
    for owner in (None, f"here:{home.folder}"):
        move = pins.ask(ask_for(version_of(home.settings, "v3")))
        if owner is not None:
            assert pins.claim(move.move_id, owner=owner)
        home.publish_supervisor()

        done = run("pin", "abort", "primary", "--orphaned")

        assert done.code == 1
        assert f"runs (pid {os.getpid()}) and sees to this move: leave out --orphaned" in done.err
        home.withdraw_supervisor()
        assert run("pin", "abort", "primary", "--orphaned").code == 0
        assert pins.open_moves() == []


def test_there_must_be_a_move_to_end(home: PinHome, run: Run) -> None:
    """Nothing is written then."""
    done = run("pin", "abort", "primary", "--orphaned")

    assert (done.code, "no move of pin primary is under way" in done.err) == (1, True)


def test_a_version_that_failed_for_want_of_proof_is_refused_at_once_the_next_time(
    home: PinHome, run: Run
) -> None:
    """Its digest is known by then; accepting it is kept with the move."""
    walked = walk(home.store, home.store.pins.ask(ask_for(version_of(home.settings, "v2"))))
    home.store.pins.end(walked, MoveState.FAILED, reason="it has no eval")

    with home.supervised():
        refused = run("pin", "set", "primary", "v2", *WHY)
        taken = run("pin", "set", "primary", "v2", "--accept-unproven", *WHY)

    assert refused.code == 1
    assert "v2 (222222222222) is unproven: it has no eval and never held this slot" in refused.err
    assert "--accept-unproven" in refused.err
    assert taken.code == 0, taken.err
    (move, *_) = home.store.pins.history("primary")
    assert move.accept_unproven
    shown = run("pin", "history").out
    assert "--accept-unproven was given and not needed" in shown, "so says the stand-in's proof"


def test_a_worse_eval_does_not_keep_an_operator_from_rolling_back(home: PinHome, run: Run) -> None:
    """What held the slot before is proven for that."""
    prove(home, "v2")
    for digest, score in ((DIGESTS["v1"], 0.5), (DIGESTS["v2"], 0.9)):
        home.store.eval_scores.add(
            EvalScore(version_digest=digest, eval_set="e", at_ms=1, score=score, num_samples=9)
        )

    with home.supervised():
        assert run("rollback", "primary", *WHY).code == 0


def test_ctrl_c_leaves_the_move_going(home: PinHome) -> None:
    """Exit 130, and it is said how to go on."""
    home.publish_supervisor()
    command = [sys.executable, "-m", "failsoft", "pin", "set", "primary", "v2", *WHY]
    environ = {**os.environ, "FAILSOFT_HOME": str(home.folder)}
    with subprocess.Popen(
        command, env=environ, cwd=home.folder, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline(), process.stderr.readline()]
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()

    assert process.returncode == 130, said
    assert lines[1].endswith("asked\n")
    assert "the move goes on" in said
    assert "failsoft pin abort primary" in said
    assert home.store.pins.open_move("primary") is not None


def test_who_follows_is_told_when_failsoft_up_is_gone(home: PinHome) -> None:
    """And of a move that nobody takes on."""
    move = home.store.pins.ask(ask_for(version_of(home.settings, "v2")))
    clock, lines = FakeTime(time.time()), list[str]()

    def sleep(seconds: float) -> None:
        clock.advance(seconds)
        if clock.now_s - move.asked_at_ms / 1000 > UNTAKEN_S + 1:
            home.withdraw_supervisor()

    home.publish_supervisor()
    follower = Follower(
        home.store, move, home=home.folder, tell=lines.append, clock=clock, sleep=sleep
    )
    with pytest.raises(PinError) as caught:
        follower.run()

    assert "`failsoft up` ended while the move was asked" in str(caught.value)
    assert clock.now_s - move.asked_at_ms / 1000 > UNTAKEN_S + GONE_S
    assert [line.split()[-1] for line in lines] == ["asked", "store"]
