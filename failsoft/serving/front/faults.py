"""What a call's error is to its caller: a status, OpenAI's error object, headers.

The ladder is the one that retries: where it did, ``x-should-retry: false`` keeps the
caller's own library from multiplying that load. Knows nothing of ASGI.
"""

import math
from dataclasses import asdict
from typing import Any

from failsoft.call_records import AttemptRecord
from failsoft.config.http import ATTEMPTS_HEADER
from failsoft.engine.http.errors import NEVER_RETRY, Fault, fault_of
from failsoft.errors import (
    CallRefusedError,
    ClientClosedError,
    EngineError,
    FailsoftError,
    FrontStoppedError,
    IdempotencyConflictError,
    IdempotencyRunningError,
    InvalidCallError,
    LadderExhaustedError,
    StreamInterruptedError,
    UnknownLadderError,
)
from failsoft.fallback.failure import Failure

RETRY_AFTER_S = 1.0
"""What a caller is told to wait where nobody knows better."""

_SHOWN = ("rung", "endpoint", "outcome", "was_sent", "total_s", "http_status", "error_message")


def fault_of_error(error: FailsoftError, *, call_id: str | None = None) -> Fault:
    """Return what to tell the caller about *error*.

    Args:
        error: What ended the call.
        call_id: The call's, if it has one yet.
    """
    # The body is read, and refused, as the engine does.
    fault = fault_of(error) if isinstance(error, EngineError) else _fault(error, call_id)
    if call_id is None:
        return fault
    return fault.with_headers({"x-request-id": call_id})


def _fault(error: FailsoftError, call_id: str | None) -> Fault:
    text = str(error)
    match error:
        case UnknownLadderError():
            return Fault(404, text, "model_not_found", error.param)
        case InvalidCallError():
            return Fault(400, text, "invalid_call", error.param)
        case CallRefusedError():
            # The endpoint's own words, as they came; ours stand where it has none.
            headers = NEVER_RETRY if error.status >= 500 else None
            return Fault(error.status, text, error.code, error.param, headers, error.body)
        case LadderExhaustedError():
            return _exhausted(error, call_id)
        case StreamInterruptedError():
            return _interrupted(error, call_id)
        case IdempotencyConflictError():
            return Fault(422, text, "idempotency_conflict", "idempotency-key")
        case IdempotencyRunningError():
            headers = {"retry-after": _whole(error.retry_after_s)}
            return Fault(409, text, "idempotency_running", "idempotency-key", headers)
        case FrontStoppedError():
            headers = {"retry-after": _whole(error.retry_after_s), "connection": "close"}
            return Fault(503, text, "front_stopped", headers=headers)
        case ClientClosedError():
            headers = {"retry-after": _whole(RETRY_AFTER_S), "connection": "close"}
            return Fault(503, text, "front_stopped", headers=headers)
    return Fault(500, text, "internal_error", headers=NEVER_RETRY)


def _exhausted(error: LadderExhaustedError, call_id: str | None) -> Fault:
    attempts = [record for record in error.attempts if isinstance(record, AttemptRecord)]
    more: dict[str, Any] = {
        "failsoft": {
            "call_id": call_id,
            "ladder": error.ladder,
            "attempts": [_shown(record) for record in attempts],
        }
    }
    if error.status == 429:
        more["type"] = "rate_limit_error"
    headers = {
        "retry-after": _whole(error.retry_after_s or RETRY_AFTER_S),
        ATTEMPTS_HEADER: str(sum(record.was_sent for record in attempts)),
        **NEVER_RETRY,
    }
    return Fault(error.status, str(error), "ladder_exhausted", None, headers, more)


def _interrupted(error: StreamInterruptedError, call_id: str | None) -> Fault:
    cause = error.cause.outcome.value if isinstance(error.cause, Failure) else None
    detail = {
        "call_id": call_id,
        "attempt_id": error.attempt_id,
        "num_tokens": error.num_tokens,
        "cause": cause,
    }
    more = {"failsoft": detail}
    return Fault(502, str(error), "stream_interrupted", None, NEVER_RETRY, more)


def _shown(record: AttemptRecord) -> dict[str, Any]:
    """Return an attempt as its caller may see it; its words are ours, never an endpoint's."""
    fields = asdict(record)
    return {name: fields[name] for name in _SHOWN}


def _whole(seconds: float) -> str:
    return str(max(1, math.ceil(seconds)))
