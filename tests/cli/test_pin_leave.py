"""``failsoft rollback`` while a move has switched and is not over, beside a stand-in."""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from failsoft.cli.pin_leave import leave_switched
from failsoft.cli.pin_place import find_place
from failsoft.fallback.discovery import RunningEngine, publish_engine
from failsoft.pin_records import MoveAsk, MoveKind, MoveState, PinMove
from failsoft.run_state import ChildState
from tests.cli.pin_home import PinHome, Run, prove
from tests.fallback.pins.moves import DIGESTS, ask_for, version_of, walk

WHY = ("--why", "callers complain")


def switched(home: PinHome, name: str = "v2", kind: MoveKind = MoveKind.SET) -> PinMove:
    """Have a move to the version called *name* drain."""
    pins = home.store.pins
    walked = walk(home.store, pins.ask(ask_for(version_of(home.settings, name), kind=kind)))
    return pins.advance(pins.switch(walked, proof={}), MoveState.DRAINING)


def wanted(home: PinHome, move: PinMove) -> PinMove:
    """Wait until a rollback is to follow *move*."""
    until_s = time.monotonic() + 20
    while time.monotonic() < until_s:
        now = home.store.pins.move(move.move_id)
        assert now is not None
        if now.rollback is not None:
            return now
        time.sleep(0.01)
    raise AssertionError("nobody rolls it back")


@contextmanager
def ending(home: PinHome, first: PinMove, state: MoveState) -> Iterator[None]:
    """Have *first* end in *state* once it is rolled back, and what follows be carried out."""

    def end() -> None:
        reason = None if state is MoveState.CONFIRMED else "it was not ready; the pin went back"
        home.store.pins.end(wanted(home, first), state, reason=reason)

    thread = threading.Thread(target=end)
    with home.supervised():
        thread.start()
        yield
        thread.join(20)


@contextmanager
def engine_of(home: PinHome, name: str) -> Iterator[None]:
    """Run what answers under the slot as an engine of the version called *name*."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Say which version this is."""
            body = json.dumps({"data": [{"version_digest": DIGESTS[name]}]}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    publish_engine(
        home.folder,
        RunningEngine(
            slot="primary", url=url, pid=os.getpid(), version=name, version_digest=DIGESTS[name]
        ),
    )
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.mark.parametrize("to", [(), ("--to", "v1"), ("--to", DIGESTS["v1"][:6])])
def test_a_rollback_leaves_what_still_drains(home: PinHome, run: Run, to: tuple[str, ...]) -> None:
    """It was refused for up to a minute, or 15: now both moves are confirmed, one by one."""
    first = switched(home)

    with ending(home, first, MoveState.CONFIRMED):
        done = run("rollback", "primary", "--who", "bob", *to, *WHY)

    assert done.code == 0, done.err
    assert "ann moved it to v2 (222222222222), which has switched and is not over" in done.err
    assert "the move to v2: confirmed after" in done.err
    assert "pin primary: from v2 (222222222222) to v1 (111111111111)" in done.err
    assert done.out.startswith("pin primary runs v1 (111111111111): confirmed after ")
    back, there, *_ = home.store.pins.history("primary")
    assert (back.kind, back.who, back.why) == ("rollback", "bob", "callers complain")
    assert there.rollback is not None
    assert there.rollback.move_id == back.move_id
    again = run("rollback", "primary", *WHY)
    assert (again.code, "no `failsoft up` runs" in again.err) == (1, True)


def test_a_pin_that_went_back_by_itself_is_not_popped_once_more(home: PinHome, run: Run) -> None:
    """Exit 0 only once what runs has said what it is; it went on to the version before that."""
    prove(home, "v3", "v2")
    first = switched(home, "v1", MoveKind.SET)
    num_moves = len(home.store.pins.history("primary"))

    with engine_of(home, "v2"), ending(home, first, MoveState.FAILED):
        done = run("rollback", "primary", *WHY)

    assert done.code == 0, done.err
    assert "failed after" in done.err
    assert f"process {os.getpid()} reported version 222222222222 of itself" in done.err
    assert done.out == "pin primary runs v2 (222222222222): it went back by itself\n"
    assert home.store.pins.pins()["primary"].version.name == "v2"
    assert len(home.store.pins.history("primary")) == num_moves
    assert "rolls it back to v2 (222222222222): callers complain" in run("pin", "history").out


def test_a_pin_that_went_back_to_an_engine_that_was_given_up_is_no_success(
    home: PinHome, run: Run
) -> None:
    """The last word is why."""
    first = switched(home)
    child = ChildState(
        name="primary", kind="engine", phase="gave_up", pid=None, since_ms=0, last_exit="exit 1"
    )

    with ending(home, first, MoveState.FAILED):
        home.publish_supervisor(child)
        done = run("rollback", "primary", *WHY)

    assert done.code == 1
    assert "pin primary went back, but its engine was given up: exit 1" in done.err


def test_a_failed_one_that_did_not_go_where_the_rollback_wants_is_followed(
    home: PinHome, run: Run
) -> None:
    """By the rollback, from what it went back to."""
    prove(home, "v2")
    first = switched(home, "v3")

    with ending(home, first, MoveState.FAILED):
        done = run("rollback", "primary", "--to", "v1", *WHY)

    assert done.code == 0, done.err
    assert "pin primary: from v2 (222222222222) to v1 (111111111111)" in done.err


def test_nobody_brings_the_bad_version_back_by_rolling_back_twice(home: PinHome, run: Run) -> None:
    """Of two operators the second comes when the first one's rollback drains already."""
    prove(home, "v2")
    home.publish_supervisor()
    first = switched(home, "v1", MoveKind.ROLLBACK)

    second = run("rollback", "primary", *WHY)
    named = run("rollback", "primary", "--to", "v1", *WHY)

    for done in (second, named):
        assert done.code == 1
        assert "ann moves it to v1 already (it is draining); wait for its end" in done.err
        assert "`failsoft rollback primary --to VERSION --why TEXT`" in done.err
    now = home.store.pins.move(first.move_id)
    assert now is not None
    assert now.rollback is None


def test_it_is_asked_without_waiting_and_of_two_the_first_wins(home: PinHome, run: Run) -> None:
    """What was asked is shown, to people and as JSON."""
    home.publish_supervisor()
    switched(home)

    asked = run("rollback", "primary", "--no-wait", "--swap", "stop-first", "--who", "bob", *WHY)
    second = run("rollback", "primary", "--who", "eve", *WHY)
    moved = run("pin", "set", "primary", "v3", *WHY)
    shown = run("pin", "show", "primary").out
    (document,) = json.loads(run("pin", "show", "primary", "--json").out)["pins"]

    assert (asked.code, asked.out) == (0, "asked; see it with `failsoft pin show primary`\n")
    assert "ladder chat has kept replies only, and all other calls FAIL" in asked.err
    for done in (second, moved):
        assert done.code == 1
        assert "ann moves it to v2 already" in done.err
        assert "and bob rolls it back to v1; wait for its end" in done.err
    assert "; bob rolls it back to v1 (111111111111): callers complain" in shown
    rollback = document["under_way"]["rollback"]
    assert (rollback["who"], rollback["why"]) == ("bob", "callers complain")
    assert (rollback["to"]["name"], rollback["move_id"]) == ("v1", None)


def test_a_move_of_another_machine_is_said_to_be(home: PinHome, run: Run) -> None:
    """Nobody here ends it: where that is gone, its end in the store is the rollback's beginning."""
    pins = home.store.pins
    asked = pins.ask(ask_for(version_of(home.settings, "v2")))
    claimed = pins.claim(asked.move_id, owner="gone:/srv/app")
    assert claimed is not None
    pins.switch(claimed, proof={})
    home.publish_supervisor()

    done = run("rollback", "primary", "--no-wait", *WHY)
    ended = run("pin", "abort", "primary", "--orphaned")

    assert done.code == 0
    assert "belongs to gone:/srv/app" in done.err
    assert "`failsoft pin abort primary --orphaned` ends it" in done.err
    assert ended.code == 0, ended.err
    assert pins.pins()["primary"].version.name == "v1"
    assert pins.open_moves() == []


@pytest.mark.parametrize("state", [MoveState.CONFIRMED, MoveState.FAILED])
def test_one_that_ended_before_it_could_be_left(
    home: PinHome, capsys: pytest.CaptureFixture[str], state: MoveState
) -> None:
    """Where the pin is at the target there is nothing to do, else the rollback is asked for."""
    first = switched(home)
    home.store.pins.end(first, state, reason="why")
    home.publish_supervisor()
    target = version_of(home.settings, "v1")
    ask = MoveAsk(slot="primary", kind=MoveKind.ROLLBACK, to=target, who="bob", why="it is bad")

    is_done = leave_switched(home.store, first, ask, place=find_place(None), waits=False)

    assert is_done is (state is MoveState.FAILED)
    assert home.store.pins.open_moves() == []
    said = capsys.readouterr().out
    assert ("went back to v1 (111111111111) by itself; nothing to move" in said) is is_done


def test_a_move_that_failed_a_moment_before_its_rollback_is_not_popped_past(
    home: PinHome, run: Run
) -> None:
    """Who cannot know that the pin went back already must not lose one good version more."""
    prove(home, "v3", "v2")
    home.store.pins.end(switched(home, "v1"), MoveState.FAILED, reason="it hangs")
    num_moves = len(home.store.pins.history("primary"))

    with engine_of(home, "v2"), home.supervised():
        done = run("rollback", "primary", *WHY)
        after = home.store.pins.history("primary")
        further = run("rollback", "primary", "--to", "v3", *WHY)

    assert done.code == 0, done.err
    assert "the move to v1 (111111111111) failed after" in done.err
    assert "`failsoft rollback primary --to VERSION --why TEXT`" in done.err
    assert done.out == "pin primary runs v2 (222222222222): it went back by itself\n"
    assert len(after) == num_moves
    assert further.code == 0, further.err
    assert home.store.pins.pins()["primary"].version.name == "v3"


@pytest.mark.parametrize("how", ["long-ago", "not-switched", "a-rollback"])
def test_only_what_went_back_lately_keeps_a_rollback_from_the_version_before(
    home: PinHome, run: Run, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """An hour later it is meant as it is said; so is it where the bad version still serves."""
    prove(home, "v3", "v2")
    kind = MoveKind.ROLLBACK if how == "a-rollback" else MoveKind.SET
    if how == "not-switched":
        move = walk(home.store, home.store.pins.ask(ask_for(version_of(home.settings, "v1"))))
    else:
        move = switched(home, "v1", kind)
    home.store.pins.end(move, MoveState.FAILED, reason="it hangs")
    if how == "long-ago":
        monkeypatch.setattr("failsoft.cli.pin_move._LATELY_S", 0.0)

    with home.supervised():
        done = run("rollback", "primary", *WHY)

    assert done.code == 0, done.err
    assert "from v2 (222222222222) to v3 (333333333333)" in done.err
