"""Faults that several tests share: a body or a stream of events in one line.

Knows nothing of servers or clients. A fault is what `tests.fallback.fault_acts` acts out.
"""

from tests.fallback.fault_server import Fault

ROLE: Fault = {"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]}
STOP: Fault = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
EMPTY: Fault = {"choices": []}
ERROR: Fault = {"error": {"message": "SECRET", "type": "server_error"}}
JSON_TYPE = "application/json"


def whole(body: str, kind: str = JSON_TYPE) -> Fault:
    """Return the fault of a 200 with that body."""
    return {"do": "plain", "body": body, "type": kind}


def sse(*events: object) -> Fault:
    """Return the fault of a stream of those events."""
    return {"do": "events", "events": list(events)}


def tool_call(call: object) -> Fault:
    """Return the chunk of one piece of a tool call."""
    return {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}
