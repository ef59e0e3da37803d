"""Turns a client method's arguments into a call request; both clients share it."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from failsoft.errors import InvalidCallError
from failsoft.fallback.call import CacheMode, CallRequest, Kind
from failsoft.fallback.core import Core

OWN_FIELDS = frozenset({"stream", "stream_options", "model"})
"""Body fields the ladder sets for each endpoint."""

Messages = Sequence[Mapping[str, Any]]
Prompt = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]


class CallOptions(TypedDict, total=False):
    """How a call travels; the same for every method.

    Every option may be left out.
    """

    ladder: str | None
    """None takes the only ladder there is."""
    deadline_s: float | None
    """Seconds for everything; None takes the ladder's."""
    tenant: str
    """Keeps replies and idempotency keys apart; empty when there is only one."""
    idempotency_key: str | None
    """1..255 characters: the same key and body give the same reply."""
    cache: CacheMode
    fallback: bool
    """False asks the first model rung alone."""
    call_id: str | None
    """1..64 characters that no other call has, best from `new_call_id`; None makes one."""


def make_request(
    core: Core,
    kind: Kind,
    body: Mapping[str, Any],
    *,
    is_stream: bool,
    ladder: str | None = None,
    deadline_s: float | None = None,
    tenant: str = "",
    idempotency_key: str | None = None,
    cache: CacheMode = "on",
    fallback: bool = True,
    call_id: str | None = None,
) -> CallRequest:
    """Return the request.

    Raises:
        InvalidCallError: An argument is out of range, or no ladder was named and there are several.
    """
    if ladder is None:
        if len(core.ladders) != 1:
            raise InvalidCallError(
                f"no ladder was named: give one of {', '.join(core.ladders)}", param="ladder"
            )
        ladder = next(iter(core.ladders))
    return CallRequest(
        kind=kind,
        body={k: v for k, v in body.items() if k not in OWN_FIELDS},
        ladder=ladder,
        deadline_s=deadline_s,
        tenant=tenant,
        idempotency_key=idempotency_key,
        cache=cache,
        fallback=fallback,
        is_stream=is_stream,
        call_id=call_id,
    )


def wants_usage(body: Mapping[str, Any]) -> bool:
    """Return whether a streaming body asks for the usage chunk."""
    options = body.get("stream_options")
    return isinstance(options, Mapping) and options.get("include_usage") is True


def split(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return *arguments* as call options and body fields; what no option is, is a body field."""
    names = CallOptions.__annotations__.keys()
    options = {k: v for k, v in arguments.items() if k in names}
    fields = {k: v for k, v in arguments.items() if k not in names}
    return options, fields
