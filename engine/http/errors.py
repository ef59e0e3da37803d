"""Every fault as OpenAI's error object, with the status that makes clients do right.

openai-python 3.x retries 408, 409, 429 and 5xx, and obeys ``retry-after`` and
``x-should-retry``; so a fault that would only repeat says ``x-should-retry: false``.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.responses import Response

from failsoft.errors import (
    BodyTooSlowError,
    DeadlineExceededError,
    EngineError,
    EngineStoppedError,
    ForwardError,
    InvalidRequestError,
    QueueFullError,
    UnknownModelError,
)

NEVER_RETRY = {"x-should-retry": "false"}


class Fault(NamedTuple):
    """One fault, ready to be sent."""

    status: int
    message: str
    code: str | None
    param: str | None = None
    headers: dict[str, str] | None = None
    more: Mapping[str, Any] | None = None
    """Further fields of the error object; one of OpenAI's own names wins over ours."""

    @property
    def body(self) -> dict[str, dict[str, Any]]:
        """OpenAI's error object."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {
            "error": {
                "message": self.message,
                "type": kind,
                "param": self.param,
                "code": self.code,
                **(self.more or {}),
            }
        }

    def with_headers(self, headers: Mapping[str, str]) -> "Fault":
        """Return it with further headers."""
        return self._replace(headers={**(self.headers or {}), **headers})

    @property
    def json(self) -> bytes:
        """The error object in ASCII: an endpoint's words may hold half a surrogate pair."""
        return json.dumps(self.body).encode()

    @property
    def event(self) -> bytes:
        """The event that ends a stream which has begun: data, and no ``[DONE]`` after it."""
        return b"data: %b\n\n" % self.json

    def response(self) -> Response:
        """The fault as a whole answer."""
        return Response(
            self.json,
            status_code=self.status,
            headers=self.headers,
            media_type="application/json",
        )


def fault_of(error: EngineError) -> Fault:
    """Return what to tell the caller about *error*."""
    text = str(error)
    match error:
        case UnknownModelError():
            return Fault(404, text, error.code, error.param)
        case InvalidRequestError():
            return Fault(400, text, error.code, error.param)
        case BodyTooSlowError():
            # The rest of the body may still come: nothing after it could be told apart.
            return Fault(408, text, "body_too_slow", headers={"connection": "close"})
        case QueueFullError():
            seconds = max(1, math.ceil(error.retry_after_s))
            return Fault(503, text, "queue_full", headers={"retry-after": str(seconds)})
        case EngineStoppedError():
            return Fault(503, text, "engine_stopped", headers={"retry-after": "1"})
        case DeadlineExceededError():
            return Fault(504, text, "deadline_exceeded", headers=NEVER_RETRY)
        case ForwardError() if error.is_callers_doing:
            return Fault(400, text, error.kind, headers=NEVER_RETRY)
        case ForwardError():
            # The same prompt makes the same bad logits; other kinds may be a neighbour's doing.
            headers = NEVER_RETRY if error.kind == "bad_logits" else None
            return Fault(500, text, error.kind, headers=headers)
    return Fault(500, text, "engine_error")
