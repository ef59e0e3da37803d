"""How a move and its proof are said."""

import json
from dataclasses import replace

from failsoft.fallback.pins.words import end_words, progress_words, proof_words, what_runs_now
from failsoft.pin_records import MoveKind, MoveState, MoveStep, PinMove, PinnedVersion

MOVE = PinMove(
    move_id="1",
    slot="primary",
    kind=MoveKind.ROLLBACK,
    left=PinnedVersion(name="v2", settings_json="{}", digest="2" * 64),
    to=PinnedVersion(name="v1", settings_json="{}", digest="1" * 64),
    who="ann",
    why="it is slow",
    swap="beside",
    accept_unproven=False,
    state=MoveState.STARTING,
    steps=(
        MoveStep(state=MoveState.ASKED, at_ms=1_000),
        MoveStep(state=MoveState.STARTING, at_ms=3_500),
    ),
    ended_at_ms=None,
    owner="o",
    abort_by="bob",
    reason=None,
    proof_json=None,
)


def test_a_move_under_way_says_how_far_it_is_and_who_wants_what() -> None:
    """Seconds of the state and of the whole."""
    assert progress_words(MOVE, now_ms=5_000) == (
        "rollback to v1 (111111111111): starting for 1.5 s, asked 4.0 s ago by ann: it is slow; "
        "bob wants it taken back"
    )


def test_an_end_says_after_how_long_why_and_what_runs() -> None:
    """Only a confirmed move changes what runs."""
    failed = replace(MOVE, state=MoveState.FAILED, ended_at_ms=7_000, reason="no memory")
    confirmed = replace(MOVE, state=MoveState.CONFIRMED, ended_at_ms=7_000)

    assert end_words(failed) == "failed after 6.0 s: no memory"
    assert what_runs_now(failed) == "v2 (222222222222) as before"
    assert what_runs_now(replace(failed, left=None)) == "what it ran before"
    assert what_runs_now(confirmed) == "v1 (111111111111)"


def test_a_proof_of_a_later_failsoft_or_none_is_no_crash() -> None:
    """What is not understood is not made up."""
    assert proof_words(MOVE) == ["none is kept"]
    assert proof_words(replace(MOVE, proof_json="{")) == ["none is kept"]
    assert proof_words(replace(MOVE, proof_json='{"digest": 3, "new": []}')) == []
    told = {"evidence": {"words": "it has no eval", "accepted": True}, "seconds": {"checking": 1}}
    assert proof_words(replace(MOVE, proof_json=json.dumps(told))) == [
        "evidence: it has no eval, and was taken all the same",
        "seconds: checking 1.0",
    ]
