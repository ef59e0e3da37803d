"""The parts of a move that need no processes: effective settings, memory, what a check says."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from failsoft.config.settings import Settings
from failsoft.errors import PinError
from failsoft.fallback.pins.pinned import pinned_version
from failsoft.pin_records import MoveKind, MoveState, MoveStep, PinMove, PinnedVersion
from failsoft.serving.supervisor.ask import parse_reply
from failsoft.serving.supervisor.moves.checking import (
    CheckReport,
    check_known_digest,
    check_memory,
    read_report,
)
from failsoft.serving.supervisor.moves.known_pins import last_known_pins, note_pins
from failsoft.serving.supervisor.moves.proof import with_seconds
from failsoft.serving.supervisor.moves.standing import Standing, effective
from failsoft.serving.supervisor.moves.trial import TrialError
from tests.serving.supervisor.builders import read
from tests.serving.supervisor.rig import ONE_ENGINE

V3 = PinnedVersion(name="v3", settings_json='{"dtype": "auto", "source": "file:v3.gguf"}')


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """One slot, pinned to v1, and v2 and v3 beside it."""
    return read(tmp_path, ONE_ENGINE)


def test_a_moved_pin_stands_over_the_files_under_its_own_name(settings: Settings) -> None:
    """Also where the file forgot it; slots that the file does not pin are left out."""
    forgot = replace(settings, versions={k: v for k, v in settings.versions.items() if k != "v3"})

    for file in (settings, forgot):
        found = effective(file, {"primary": V3, "gone": V3})
        assert found.pins == {**settings.pins, "primary": "v3"}
        assert found.versions["v3"].source == "file:v3.gguf"


def test_a_name_that_means_something_else_by_now_gets_another(settings: Settings) -> None:
    """So both meanings can be read from one file."""
    other = replace(V3, settings_json='{"source": "file:old.gguf"}')

    found = effective(settings, {"primary": other})

    name = found.pins["primary"]
    assert name.startswith("v3.")
    assert found.versions[name].source == "file:old.gguf"
    assert found.versions["v3"] == settings.versions["v3"]


def test_a_pinned_table_that_cannot_be_read_is_told_and_not_passed_over(settings: Settings) -> None:
    """As one that a later failsoft wrote."""
    with pytest.raises(PinError, match="cannot be read by this failsoft; run the one"):
        effective(settings, {"primary": replace(V3, settings_json='{"source": 5}')})


def test_a_held_slot_runs_what_it_ran_whatever_is_pinned_or_written(settings: Settings) -> None:
    """And goes by the pin again afterwards."""
    standing = Standing(settings)
    ran = pinned_version("v1", settings.versions)
    assert ran is not None

    standing.hold("primary", ran)
    standing.pin("primary", V3)
    held = standing.settings().pins["primary"]
    standing.let_go("primary")

    assert (held, standing.settings().pins["primary"]) == ("v1", "v3")
    assert standing.version("nowhere") is None


@pytest.mark.parametrize(
    ("needs", "available", "swap", "words"),
    [
        (100, 100, "beside", None),
        (None, 1, "beside", None),
        (101, 100, "beside", "beside the running engine; use `--swap stop-first`"),
        (151, 100, "beside", "even with `--swap stop-first` there are 0; free some"),
        (140, 100, "stop-first", None),
        (151, 100, "stop-first", "even with `--swap stop-first` there are 0; free some"),
    ],
)
def test_memory_is_what_is_left_and_under_stop_first_what_the_old_engine_gives_back(
    needs: int | None, available: int, swap: str, words: str | None
) -> None:
    """What nobody can tell is tried."""
    report = CheckReport(digest="1" * 64, needs_bytes=needs, available_bytes=available)

    def check() -> None:
        check_memory(report, swap=swap, freed_bytes=50, taken_bytes=0)  # type: ignore[arg-type]

    if words is None:
        check()
    else:
        with pytest.raises(TrialError, match=words):
            check()


def test_engines_that_load_for_other_moves_count_against_what_is_left() -> None:
    """They have not taken yet what they will."""
    report = CheckReport(digest="1" * 64, needs_bytes=60, available_bytes=100)

    with pytest.raises(TrialError, match="needs 0 MiB"):
        check_memory(report, swap="beside", freed_bytes=0, taken_bytes=50)


def test_a_check_that_broke_or_found_something_ends_the_move_with_its_words() -> None:
    """The last line of a crash counts; a problem is passed on as it is."""
    good = {
        "version_digest": "1" * 64,
        "files_good": True,
        "problems": [],
        "needs_bytes": 1,
        "available_bytes": None,
    }
    bad = {**good, "problems": ["a.gguf is damaged; run `x`"]}

    assert read_report(json.dumps(good).encode(), b"", code=0).digest == "1" * 64
    with pytest.raises(TrialError, match=r"^a\.gguf is damaged; run `x`$"):
        read_report(json.dumps(bad).encode(), b"", code=0)
    with pytest.raises(TrialError, match="exit 1: RuntimeError: no"):
        read_report(b"", b"Traceback\nRuntimeError: no\n", code=1)
    with pytest.raises(TrialError, match="do not verify"):
        read_report(json.dumps({**good, "version_digest": None}).encode(), b"", code=0)


def test_files_that_became_another_version_are_not_what_was_asked_for() -> None:
    """A rollback by digest must bring that digest."""
    check_known_digest(V3, "2" * 64)
    with pytest.raises(TrialError, match="is version 222222222222… here by now"):
        check_known_digest(replace(V3, digest="1" * 64), "2" * 64)


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}",
    ],
)
def test_what_is_no_whole_http_reply_is_refused(reply: bytes) -> None:
    """A cut reply is no answer."""
    with pytest.raises(ValueError, match=r"HTTP|cut"):
        parse_reply(reply)


def test_the_pins_last_known_are_those_of_the_same_store(tmp_path: Path) -> None:
    """Nothing is written where nothing was ever moved."""
    note_pins(tmp_path, "sqlite:///a.db", {})
    assert not list(tmp_path.iterdir())

    note_pins(tmp_path, "sqlite:///a.db", {"primary": V3})

    assert last_known_pins(tmp_path, "sqlite:///a.db") == {"primary": V3}
    assert last_known_pins(tmp_path, "sqlite:///b.db") is None
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600]


def test_no_state_takes_less_than_no_time() -> None:
    """The wall clock may be put back in the middle of a move."""
    version = PinnedVersion(name="v1", settings_json="{}")
    stamps = ((MoveState.ASKED, 9_000), (MoveState.CHECKING, 5_000), (MoveState.STARTING, 7_000))
    move = PinMove(
        move_id="m",
        slot="primary",
        kind=MoveKind.SET,
        left=version,
        to=version,
        who="ann",
        why="try it",
        swap="beside",
        accept_unproven=False,
        state=MoveState.STARTING,
        steps=tuple(MoveStep(state=state, at_ms=at_ms) for state, at_ms in stamps),
        ended_at_ms=None,
        owner=None,
        abort_by=None,
        reason=None,
        proof_json=None,
    )

    proof = with_seconds({}, move, clock=lambda: 6.0)

    assert proof["seconds"] == {"asked": 0.0, "checking": 2.0, "starting": 0.0}
