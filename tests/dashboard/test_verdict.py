"""The rules by which it is said to be answering or not."""

from typing import Any

import pytest

from failsoft.call_records import CallOutcome, EventRecord
from failsoft.dashboard.standing import Answers, Rung, Verdict
from failsoft.dashboard.verdict import doubted, judge, worst
from failsoft.store.traffic import CallEnd
from tests.dashboard.stand_in import rung

OK, FAILED, CUT = CallOutcome.OK, CallOutcome.FAILED, CallOutcome.INCOMPLETE
FRONT_MS = 100


def rungs(*, order: str = "primary small cache", down: str = "", unsure: str = "") -> list[Rung]:
    """Return a ladder; *down* rungs cannot serve, of *unsure* ones nobody knows."""
    found = []
    for place, name in enumerate(order.split()):
        can_serve = None if name in unsure.split() else name not in down.split()
        found.append(Rung(**rung(name, place, can_serve=can_serve, why_not=None)))
    return found


def calls(*outcomes: CallOutcome) -> list[CallEnd]:
    """Return calls, newest first."""
    return [
        CallEnd(started_at_ms=9, outcome=each, endpoint=None if each is FAILED else "primary")
        for each in outcomes
    ]


def told(**changes: Any) -> Verdict:
    """Return the verdict on a ladder that is well but for *changes*."""
    arguments: dict[str, Any] = {
        "is_draining": False,
        "recent": (),
        "events": (),
        "serving_since": {},
        "front_since_ms": FRONT_MS,
        **changes,
    }
    return judge(arguments.pop("rungs", rungs()), **arguments)


@pytest.mark.parametrize(
    ("ladder", "answers", "who"),
    [
        (rungs(), Answers.YES, "primary"),
        (rungs(down="primary"), Answers.DEGRADED, "small"),
        (rungs(down="primary small"), Answers.DEGRADED, "cache"),
        (rungs(down="primary small cache"), Answers.NO, None),
        (rungs(unsure="primary"), Answers.DEGRADED, "small"),
        (rungs(unsure="primary", down="small cache"), Answers.UNKNOWN, None),
        (rungs(unsure="cache", down="primary small"), Answers.UNKNOWN, None),
        (rungs(order="cache primary small"), Answers.YES, "primary"),
        (rungs(order="cache primary", down="primary"), Answers.DEGRADED, "cache"),
        (rungs(order="cache"), Answers.YES, "cache"),
    ],
)
def test_who_answers(ladder: list[Rung], answers: Answers, who: str | None) -> None:
    """The first model that can serve; a cache in front saves calls and decides nothing."""
    verdict = told(rungs=ladder)

    assert (verdict.answers, verdict.rung) == (answers, who)


@pytest.mark.parametrize(
    ("recent", "answers"),
    [
        (calls(FAILED), Answers.YES),
        (calls(FAILED, OK, OK), Answers.YES),
        (calls(OK, FAILED, FAILED), Answers.DEGRADED),
        (calls(FAILED, FAILED), Answers.DEGRADED),
        (calls(FAILED, FAILED, FAILED), Answers.NO),
        (calls(FAILED, FAILED, FAILED, OK), Answers.DEGRADED),
        (calls(*[FAILED] * 5, OK), Answers.NO),
        (calls(CUT, CUT, CUT, CUT), Answers.DEGRADED),
        (calls(CUT, FAILED, CUT, FAILED, FAILED), Answers.NO),
        (calls(*[CallOutcome.REJECTED] * 9), Answers.YES),
    ],
)
def test_what_calls_met_outweighs_what_rungs_claim(recent: list[CallEnd], answers: Answers) -> None:
    """One failed call may be its own fault, and so may rejected ones; cut ones had a part."""
    assert told(recent=recent).answers is answers


def replies(*names: str, at_ms: int = FRONT_MS + 1) -> list[CallEnd]:
    """Return whole replies by these rungs."""
    return [CallEnd(started_at_ms=at_ms, outcome=OK, endpoint=name) for name in names]


@pytest.mark.parametrize(
    ("recent", "answers", "who"),
    [
        (replies("small"), Answers.DEGRADED, "small"),
        (replies("cache", "small"), Answers.DEGRADED, "cache"),
        (replies("small", "primary"), Answers.YES, "primary"),
        (replies("small", at_ms=FRONT_MS - 1), Answers.YES, "primary"),
        (replies("retired"), Answers.YES, "primary"),
    ],
)
def test_a_first_model_that_answers_nobody_is_not_fine(
    recent: list[CallEnd], answers: Answers, who: str
) -> None:
    """With few calls its breaker never opens; replies of before it could serve do not count."""
    verdict = told(recent=recent)

    assert (verdict.answers, verdict.rung) == (answers, who)


def test_a_cache_in_front_passes_nobody_over() -> None:
    """It saves calls; the model behind it was not asked."""
    assert told(rungs=rungs(order="cache primary"), recent=replies("cache")).answers is Answers.YES


@pytest.mark.parametrize(
    ("breaker", "can_serve"), [("closed", True), (None, True), ("open", None), ("half_open", None)]
)
def test_an_endpoint_that_failed_and_was_not_asked_since_is_unknown(
    breaker: str | None, can_serve: bool | None
) -> None:
    """Its breaker would let a call through; whether that were answered nobody measured."""
    far = Rung(**rung("far", 0, kind="endpoint", slot=None, breaker=breaker, retry_in_s=0.0))

    assert doubted(far, {}).can_serve is can_serve


def event(kind: str, subject: str, at_ms: int) -> EventRecord:
    """Return an event."""
    return EventRecord(kind=kind, at_ms=at_ms, subject=subject)


def test_it_answers_since_the_last_obstacle_was_gone() -> None:
    """The engine was ready before the breaker let it back."""
    events = [
        event("breaker.closed", "primary", 900),
        event("engine.restarted", "primary", 800),
        event("breaker.open", "primary", 700),
    ]

    assert told(events=events, serving_since={"primary": 800}).since_ms == 900


def test_a_lower_rung_answers_since_the_upper_one_fell() -> None:
    """Later bad news about it moves nothing; another rung's news is not its own."""
    events = [
        event("engine.restarted", "small", 960),
        event("engine.died", "small", 950),
        event("engine.died", "primary", 940),
        event("breaker.half_open", "primary", 930),
        event("breaker.open", "primary", 500),
        event("breaker.closed", "primary", 400),
        event("breaker.open", "primary", 300),
    ]

    assert told(rungs=rungs(down="primary"), events=events[2:]).since_ms == 500
    assert told(rungs=rungs(down="primary"), events=events).since_ms == 960


def test_it_answers_no_longer_than_the_front_runs() -> None:
    """Before that nobody was answered."""
    assert told(serving_since={"primary": 50}).since_ms == FRONT_MS
    assert told(serving_since={"primary": 150}).since_ms == 150


def test_nobody_answers_since_the_last_one_fell() -> None:
    """When nothing tells, nothing is claimed."""
    events = [event("engine.died", "small", 900), event("engine.died", "primary", 700)]
    nobody = rungs(down="primary small cache")

    assert told(rungs=nobody, events=events).since_ms == 900
    assert told(rungs=nobody).since_ms is None


def test_calls_fail_since_the_first_one_after_the_last_reply() -> None:
    """Without a reply among the calls of the last minute nobody can say since when."""
    outcomes = dict.fromkeys((90, 80, 70, 65, 60), FAILED) | {50: OK, 40: FAILED}
    ends = [
        CallEnd(started_at_ms=at_ms, outcome=outcome, endpoint=None)
        for at_ms, outcome in outcomes.items()
    ]

    assert told(recent=ends).since_ms == 60
    assert told(recent=ends[:5]).since_ms is None


def test_no_is_worse_than_unknown_is_worse_than_degraded() -> None:
    """The order in which to look at them."""
    verdicts = {each.value: Verdict(answers=each, reason="because") for each in Answers}
    seen = []
    while verdicts:
        verdict = worst(verdicts)
        assert verdict is not None
        seen.append(verdicts.pop(verdict.answers).answers)

    assert seen == [Answers.NO, Answers.UNKNOWN, Answers.DEGRADED, Answers.YES]
    assert worst({}) is None
