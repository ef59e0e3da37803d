"""What counts as evidence for a version: having held the slot, or an eval that is not worse."""

import pytest

from failsoft.fallback.pins.evidence import judge_evidence
from failsoft.pin_records import EvalScore, MoveKind


def scores(**by_set: float) -> dict[str, EvalScore]:
    """Newest scores by eval set."""
    return {
        name: EvalScore(version_digest="1" * 64, eval_set=name, at_ms=1, score=score, num_samples=9)
        for name, score in by_set.items()
    }


@pytest.mark.parametrize(
    ("kind", "target", "pinned", "was_confirmed", "is_enough"),
    [
        (MoveKind.SET, {}, {}, False, False),
        (MoveKind.SET, {}, {}, True, True),
        (MoveKind.ROLLBACK, {"faq": 0.1}, {"faq": 0.9}, True, True),
        (MoveKind.SET, {"faq": 0.9}, {"faq": 0.9}, False, True),
        (MoveKind.SET, {"faq": 0.8}, {"faq": 0.9}, False, False),
        (MoveKind.SET, {"faq": 0.9, "sum": 0.1}, {"faq": 0.9, "sum": 0.2}, False, False),
        (MoveKind.SET, {"faq": 0.9}, {"sum": 0.9}, False, False),
        (MoveKind.SET, {"faq": 0.9}, {}, False, True),
        (MoveKind.AUTOMATIC, {}, {"faq": 0.1}, True, False),
        (MoveKind.AUTOMATIC, {"faq": 0.8}, {"faq": 0.9}, True, False),
        (MoveKind.AUTOMATIC, {"faq": 0.9}, {"faq": 0.8}, True, True),
    ],
)
def test_an_operator_may_go_back_and_all_else_needs_an_eval_that_is_not_worse(
    kind: MoveKind,
    target: dict[str, float],
    pinned: dict[str, float],
    was_confirmed: bool,
    is_enough: bool,
) -> None:
    """On each set that both ran; an automatic move goes by evals alone."""
    found = judge_evidence(
        kind=kind,
        target=scores(**target),
        pinned=scores(**pinned),
        was_confirmed=was_confirmed,
    )

    assert (found.is_enough, found.is_accepted) == (is_enough, False)


def test_a_person_takes_what_nothing_speaks_for_and_a_trigger_never_does() -> None:
    """Which set was worse, and by how much, is said; that it was taken all the same is kept."""
    worse = {"target": scores(faq=0.5), "pinned": scores(faq=0.9), "was_confirmed": False}

    by_hand = judge_evidence(kind=MoveKind.SET, accept_unproven=True, **worse)  # type: ignore[arg-type]
    by_itself = judge_evidence(kind=MoveKind.AUTOMATIC, accept_unproven=True, **worse)  # type: ignore[arg-type]

    assert (by_hand.is_enough, by_hand.is_accepted) == (True, True)
    assert by_hand.words == "its last eval is worse: faq 0.5 against 0.9"
    assert (by_itself.is_enough, by_itself.is_accepted) == (False, False)
