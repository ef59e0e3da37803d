"""What went wrong with one attempt, and what may be done about it.

Knows nothing of HTTP libraries, rungs or time. A failure's words name kinds,
statuses and codes only: an endpoint's own message may quote the caller, so it
never enters them. Rules: which statuses are retried follows openai-python and
the SRE book; 429 with ``insufficient_quota`` is no rate limit; our engine's
``queue_full`` is a shed, which the breaker must not read as illness.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from failsoft.call_records import AttemptOutcome as Outcome
from failsoft.errors import RungFailedError

RETRIED_STATUSES = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
"""409 here means a lock: openai-python retries it too."""
NEXT_RUNG_STATUSES = frozenset({401, 402, 403, 404, 410})
CALLER_STATUSES = frozenset({400, 413, 422})

_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "quota_exceeded"})
_RATE_CODES = frozenset({"rate_limit_exceeded", "rate_limit_error", "too_many_requests"})
_AUTH_CODES = frozenset({"invalid_api_key", "authentication_error", "permission_error"})
_CODE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


class Action(StrEnum):
    """What the ladder may do next."""

    RETRY = "retry"
    """Ask the same rung again, within budget and deadline; then step down."""
    STEP_DOWN = "step_down"
    GIVE_UP = "give_up"
    """The caller's fault: asking anybody else is wrong too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One attempt's failure; its ``str`` and ``repr`` are safe to log and to show."""

    outcome: Outcome
    action: Action
    detail: str
    status: int | None = None
    code: str | None = None
    param: str | None = None
    retry_after_s: float | None = None
    is_evidence: bool = False
    """Whether the breaker may count it against the endpoint."""
    is_transport: bool = False
    """Whether no reply came at all: some in a row open the breaker at once."""
    error_body: Mapping[str, Any] | None = field(default=None, repr=False)
    """The endpoint's own words, which may quote the caller: in no message and no ``repr``."""

    def __str__(self) -> str:
        status = f" {self.status}" if self.status is not None else ""
        code = f" {self.code}" if self.code else ""
        return f"{self.outcome}{status}{code} ({self.detail})"


def cause_of(exc: RungFailedError) -> Failure:
    """Return *exc*'s cause with its type (errors know no parts)."""
    assert isinstance(exc.cause, Failure)
    return exc.cause


def transport_failure(outcome: Outcome, detail: str) -> Failure:
    """Return the failure of a connection that never brought a reply."""
    return Failure(
        outcome=outcome, action=Action.RETRY, detail=detail, is_evidence=True, is_transport=True
    )


def bad_reply(detail: str) -> Failure:
    """Return the failure of a 2xx that is not a reply; retried as a 500 would be."""
    return Failure(outcome=Outcome.BAD_REPLY, action=Action.RETRY, detail=detail, is_evidence=True)


def cut(detail: str) -> Failure:
    """Return the failure of a reply that broke off before its finish reason."""
    return Failure(outcome=Outcome.CUT, action=Action.RETRY, detail=detail, is_evidence=True)


def error_object(body: object) -> Mapping[str, Any] | None:
    """Return the error inside *body* as a mapping, whatever its shape; None when there is none.

    OpenAI nests ``{"error": {...}}``; others send ``{"error": "words"}`` or
    ``{"object": "error", ...}``, or ``{"detail": ...}``.
    """
    if not isinstance(body, Mapping):
        return None
    error = body.get("error")
    if isinstance(error, Mapping):
        return error
    if error:
        return {"message": error}
    if body.get("object") == "error" or body.get("type") == "error":
        return body
    return None


def status_failure(
    status: int, *, body: object, retry_after_s: float | None, should_retry: bool | None
) -> Failure:
    """Classify a reply whose HTTP status is not 2xx.

    Args:
        status: The status, 300..599.
        body: The parsed JSON body, or None.
        retry_after_s: What the endpoint asked to wait, in seconds.
        should_retry: The ``x-should-retry`` header, which wins over the status; None when absent.
    """
    error = error_object(body) or {}
    code = _word(error.get("code")) or _word(error.get("type"))
    action, outcome, is_evidence = _judge(status, error, retry_after_s)
    if should_retry is not None and action is not Action.GIVE_UP:
        action = Action.RETRY if should_retry else Action.STEP_DOWN
    return Failure(
        outcome=outcome,
        action=action,
        detail=f"HTTP {status}",
        status=status,
        code=code,
        param=_word(error.get("param")),
        retry_after_s=retry_after_s,
        is_evidence=is_evidence,
        error_body=error or None,
    )


def _judge(
    status: int, error: Mapping[str, Any], retry_after_s: float | None
) -> tuple[Action, Outcome, bool]:
    words = {_word(error.get("code")), _word(error.get("type"))}
    if status in CALLER_STATUSES:
        return Action.GIVE_UP, Outcome.BAD_REQUEST, False
    if status in (401, 402, 403):
        return Action.STEP_DOWN, Outcome.AUTH, False
    if status in NEXT_RUNG_STATUSES:
        return Action.STEP_DOWN, Outcome.HTTP_STATUS, False
    if status == 429:
        if words & _QUOTA_CODES:
            return Action.STEP_DOWN, Outcome.QUOTA, False
        return Action.RETRY, Outcome.THROTTLED, False
    if status == 503 and "queue_full" in words:
        return Action.STEP_DOWN, Outcome.QUEUE_FULL, False
    if status == 504 and "deadline_exceeded" in words:
        # Our engine dropped work whose deadline passed: ours ran out, the engine is well.
        return Action.STEP_DOWN, Outcome.DEADLINE, False
    outcome = Outcome.THROTTLED if retry_after_s and status == 503 else Outcome.HTTP_STATUS
    if status in RETRIED_STATUSES:
        return Action.RETRY, outcome, status >= 500
    return Action.STEP_DOWN, outcome, status >= 500


def error_in_reply(error: Mapping[str, Any]) -> Failure:
    """Classify an error that came inside a 200: an error body, or an error event.

    An endpoint that says 200 has shown no fault of the caller, so even
    ``invalid_request_error`` only steps down here.
    """
    words = {_word(error.get("code")), _word(error.get("type"))}
    code = _word(error.get("code")) or _word(error.get("type"))
    outcome, action, is_evidence = Outcome.BAD_REPLY, Action.RETRY, True
    if words & _QUOTA_CODES:
        outcome, action, is_evidence = Outcome.QUOTA, Action.STEP_DOWN, False
    elif words & _RATE_CODES or 429 in (error.get("code"), error.get("status")):
        outcome, is_evidence = Outcome.THROTTLED, False
    elif words & _AUTH_CODES:
        outcome, action, is_evidence = Outcome.AUTH, Action.STEP_DOWN, False
    elif "queue_full" in words:
        outcome, action, is_evidence = Outcome.QUEUE_FULL, Action.STEP_DOWN, False
    elif "deadline_exceeded" in words:
        outcome, action, is_evidence = Outcome.DEADLINE, Action.STEP_DOWN, False
    elif "invalid_request_error" in words:
        action, is_evidence = Action.STEP_DOWN, False
    return Failure(
        outcome=outcome,
        action=action,
        detail="an error inside a 200",
        code=code,
        param=_word(error.get("param")),
        is_evidence=is_evidence,
        error_body=error,
    )


def clock_failure(
    elapsed_s: float, *, is_over: bool, is_deadline: bool, has_token: bool
) -> Failure:
    """Return the failure of an attempt that one of its clocks ended.

    Args:
        elapsed_s: How long it ran.
        is_over: Whether all its time is up, not only that of its next token.
        is_deadline: Whether the call's deadline set that time.
        has_token: Whether any token came.
    """
    if is_over:
        outcome = Outcome.DEADLINE if is_deadline else Outcome.TIMEOUT_TOTAL
    else:
        outcome = Outcome.TIMEOUT_GAP if has_token else Outcome.TIMEOUT_FIRST_TOKEN
    return Failure(
        outcome=outcome,
        action=Action.STEP_DOWN,
        detail=f"after {elapsed_s:.3f} s",
        # Whether silence before the first token is evidence depends on how long it was.
        is_evidence=outcome in (Outcome.TIMEOUT_GAP, Outcome.TIMEOUT_TOTAL),
    )


def _word(value: object) -> str | None:
    """Return a machine word fit for a message; anything longer or odd may be a user's text."""
    if isinstance(value, bool) or value is None:
        return None
    text = str(value)
    return text if _CODE.fullmatch(text) else None
