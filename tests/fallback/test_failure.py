"""Which failure allows which next step."""

import pytest

from failsoft.call_records import AttemptOutcome as Outcome
from failsoft.fallback.failure import Action, Failure, error_in_reply, status_failure


def classify(status: int, **error: object) -> Failure:
    """Return the failure of *status* with that error body and no headers."""
    return status_failure(status, body={"error": error}, retry_after_s=None, should_retry=None)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_passing_trouble_is_retried(status: int) -> None:
    """The list of ladder.md; 409 is a lock."""
    assert classify(status).action is Action.RETRY


@pytest.mark.parametrize("status", [400, 413, 422])
def test_the_callers_fault_goes_nowhere_else(status: int) -> None:
    """Asking another model the same wrong question is wrong too, and tells nothing of the first."""
    failure = classify(status)

    assert failure.action is Action.GIVE_UP
    assert failure.outcome is Outcome.BAD_REQUEST
    assert not failure.is_evidence


@pytest.mark.parametrize("status", [301, 401, 402, 403, 404, 410, 501])
def test_what_another_rung_may_mend_steps_down_at_once(status: int) -> None:
    """A key, a missing model or a moved endpoint is no better a second later."""
    assert classify(status).action is Action.STEP_DOWN


def test_spent_quota_is_no_rate_limit() -> None:
    """429 insufficient_quota: waiting does not help."""
    failure = classify(429, code="insufficient_quota", type="insufficient_quota")

    assert (failure.action, failure.outcome) == (Action.STEP_DOWN, Outcome.QUOTA)


def test_queue_full_steps_down_and_the_breaker_ignores_it() -> None:
    """Our engine shed it at the door: another engine may have room, and it is not ill."""
    failure = classify(503, code="queue_full")

    assert (failure.action, failure.outcome) == (Action.STEP_DOWN, Outcome.QUEUE_FULL)
    assert not failure.is_evidence


@pytest.mark.parametrize(
    ("status", "says", "action"),
    [
        (503, False, Action.STEP_DOWN),
        (404, True, Action.RETRY),
        (400, True, Action.GIVE_UP),
    ],
)
def test_x_should_retry_wins_but_over_a_callers_fault(
    status: int, says: bool, action: Action
) -> None:
    """The endpoint knows best whether its failure repeats."""
    failure = status_failure(status, body=None, retry_after_s=None, should_retry=says)

    assert failure.action is action


@pytest.mark.parametrize("status", [400, 401, 404, 429])
def test_only_5xx_is_evidence(status: int) -> None:
    """4xx is about the request, our key or our rate."""
    assert not classify(status).is_evidence
    assert classify(500).is_evidence


def test_a_failures_words_hold_no_endpoint_message() -> None:
    """An endpoint may quote the prompt in its message, or in a field that should be a code."""
    failure = classify(400, message="you said: my secret", code="you said: my secret", param="p q")

    assert "secret" not in str(failure)
    assert failure.code is None
    assert failure.param is None


@pytest.mark.parametrize(
    ("error", "action", "outcome", "is_evidence"),
    [
        ({"type": "server_error"}, Action.RETRY, Outcome.BAD_REPLY, True),
        ({"code": "insufficient_quota"}, Action.STEP_DOWN, Outcome.QUOTA, False),
        ({"code": "rate_limit_exceeded"}, Action.RETRY, Outcome.THROTTLED, False),
        ({"code": 429}, Action.RETRY, Outcome.THROTTLED, False),
        ({"code": "queue_full"}, Action.STEP_DOWN, Outcome.QUEUE_FULL, False),
        ({"type": "invalid_request_error"}, Action.STEP_DOWN, Outcome.BAD_REPLY, False),
    ],
)
def test_an_error_inside_a_200_is_judged_by_its_words(
    error: dict[str, object], action: Action, outcome: Outcome, is_evidence: bool
) -> None:
    """It never becomes the caller's fault: 200 said there was none."""
    failure = error_in_reply(error)

    assert (failure.action, failure.outcome, failure.is_evidence) == (action, outcome, is_evidence)
