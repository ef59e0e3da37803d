"""How a call travels, out of its headers; which ladder, out of its body.

Knows nothing of ASGI but its list of headers. A bad value names header, value and range.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, Literal

from failsoft.config.http import (
    CACHE_HEADER,
    DEADLINE_HEADER,
    FALLBACK_HEADER,
    IDEMPOTENCY_HEADER,
    MAX_DEADLINE_MS,
    TENANT_HEADER,
)
from failsoft.errors import InvalidCallError, UnknownLadderError
from failsoft.fallback.call import MAX_IDEMPOTENCY_KEY_CHARS, CacheMode
from failsoft.fallback.request_face import CallOptions

MAX_TENANT_CHARS = 128

_HEADERS = frozenset(
    name.encode()
    for name in (
        DEADLINE_HEADER,
        FALLBACK_HEADER,
        CACHE_HEADER,
        TENANT_HEADER,
        IDEMPOTENCY_HEADER,
    )
)
_TENANT = re.compile(rf"[!-~]{{1,{MAX_TENANT_CHARS}}}")
_CACHE_MODES: Mapping[str, CacheMode] = {"on": "on", "off": "off", "refresh": "refresh"}


def read_options(headers: Collection[tuple[bytes, bytes]], *, caller: str) -> CallOptions:
    """Return the options that a request's headers ask for.

    Args:
        headers: As ASGI has them, names in lower case.
        caller: Whose key came with it; empty where nobody needs one, and only then the
            tenant's header counts.

    Raises:
        InvalidCallError: A header's value is out of range, or it came twice.
    """
    found = _own_headers(headers)
    options: CallOptions = {"tenant": caller}
    if not caller and (tenant := found.get(TENANT_HEADER)) is not None:
        if not _TENANT.fullmatch(tenant):
            allowed = f"1..{MAX_TENANT_CHARS} printable ASCII characters without space"
            raise _refused(TENANT_HEADER, tenant, allowed)
        options["tenant"] = tenant
    if (deadline := found.get(DEADLINE_HEADER)) is not None:
        options["deadline_s"] = _milliseconds(deadline) / 1000
    if (fallback := found.get(FALLBACK_HEADER)) is not None:
        if fallback not in ("on", "off"):
            raise _refused(FALLBACK_HEADER, fallback, "on or off")
        options["fallback"] = fallback == "on"
    if (cache := found.get(CACHE_HEADER)) is not None:
        if cache not in _CACHE_MODES:
            raise _refused(CACHE_HEADER, cache, "on, off or refresh")
        options["cache"] = _CACHE_MODES[cache]
    if (key := found.get(IDEMPOTENCY_HEADER)) is not None:
        if not 1 <= len(key) <= MAX_IDEMPOTENCY_KEY_CHARS:
            allowed = f"1..{MAX_IDEMPOTENCY_KEY_CHARS} characters"
            raise _refused(IDEMPOTENCY_HEADER, f"{key[:16]}…", allowed)
        options["idempotency_key"] = key
    return options


def choose_ladder(body: Mapping[str, Any], ladders: Collection[str]) -> str:
    """Return the ladder that *body*'s ``model`` names; the only one there is when it names none.

    Raises:
        UnknownLadderError: There is no such ladder.
        InvalidCallError: ``model`` is missing and there are several, or it is no text.
    """
    model = body.get("model")
    known = ", ".join(ladders)
    if model is None:
        if len(ladders) == 1:
            return next(iter(ladders))
        raise InvalidCallError(f"model is missing: give one of {known}", param="model")
    if not isinstance(model, str):
        kind = type(model).__name__
        raise InvalidCallError(
            f"model must be text, not {kind}: give one of {known}", param="model"
        )
    if model not in ladders:
        raise UnknownLadderError(model, known=tuple(ladders), param="model")
    return model


def wants_stream(body: Mapping[str, Any]) -> bool:
    """Return whether *body* asks for a stream.

    Raises:
        InvalidCallError: ``stream`` is neither true nor false.
    """
    value: Literal[True, False] | object | None = body.get("stream")
    if value is None or isinstance(value, bool):
        return bool(value)
    raise InvalidCallError(f"stream = {value!r}: give true or false", param="stream")


def _own_headers(headers: Collection[tuple[bytes, bytes]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in headers:
        if name in _HEADERS:
            key = name.decode("ascii")
            if key in found:
                raise InvalidCallError(f"the header {key} came twice: send it once", param=key)
            found[key] = value.decode("latin-1").strip()
    return found


def _milliseconds(text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_DEADLINE_MS))
    if not is_number or not 1 <= int(text) <= MAX_DEADLINE_MS:
        allowed = f"an integer in 1..{MAX_DEADLINE_MS} (milliseconds left)"
        raise _refused(DEADLINE_HEADER, text, allowed)
    return int(text)


def _refused(name: str, value: str, allowed: str) -> InvalidCallError:
    shown = value if len(value) <= MAX_TENANT_CHARS else f"{value[:MAX_TENANT_CHARS]}…"
    return InvalidCallError(f"the header {name} = {shown!r} is not allowed: {allowed}", param=name)
