"""What callers met, counted."""

from typing import Any

from failsoft.serving.demo.score import CallEnd, CallResult, Score

RUNGS = ("primary", "small", "cache")


def result(rung: str | None = "primary", **changes: Any) -> CallResult:
    """Return one answered call."""
    arguments: dict[str, Any] = {
        "end": CallEnd.ANSWERED,
        "rung": rung,
        "first_token_s": 0.1,
        "ended_s": 0.0,
        **changes,
    }
    return CallResult(**arguments)


def test_shares_are_of_the_last_five_seconds() -> None:
    """Older replies count in the total only; a rung that never answered is there."""
    now_s = [0.0]
    score = Score(RUNGS, clock=lambda: now_s[0])
    score.add(result("primary", ended_s=0.0))
    score.add(result("small", ended_s=4.0))
    score.add(result("small", ended_s=5.0))
    now_s[0] = 5.5

    tally = score.tally()

    assert tally.recent == {"primary": 0, "small": 2, "cache": 0}
    assert (tally.share("small"), tally.share("primary")) == (1.0, 0.0)
    assert tally.total == {"primary": 1, "small": 2, "cache": 0}


def test_without_replies_there_is_no_share() -> None:
    """Nothing was measured."""
    tally = Score(RUNGS).tally()

    assert tally.share("primary") is None
    assert tally.slowest_first_token_s is None
    assert tally.rung is None


def test_failed_and_cut_calls_are_apart() -> None:
    """A cut one had begun; the slowest first token counts whoever got one."""
    score = Score(RUNGS)
    score.add(result(first_token_s=0.3))
    score.add(result(end=CallEnd.CUT, first_token_s=0.7))
    score.add(result(None, end=CallEnd.FAILED, first_token_s=None, why="HTTP 503"))

    tally = score.tally()

    assert (tally.num_cut, tally.num_failed) == (1, 1)
    assert tally.slowest_first_token_s == 0.7
    assert tally.last_failure == "HTTP 503"
    assert tally.total == {"primary": 1, "small": 0, "cache": 0}


def test_the_rung_shifts_after_two_replies_in_a_row() -> None:
    """One straggler of the old engine is no way back."""
    shifts: list[str] = []
    score = Score(RUNGS, on_shift=shifts.append)

    for rung in ("primary", "small", "primary", "small", "small", "primary", "small"):
        score.add(result(rung))

    assert shifts == ["primary", "small"]
    assert score.tally().rung == "small"
