"""How long an endpoint asks to be left alone, from its reply's headers.

Units: seconds. ``retry-after-ms`` wins over ``retry-after``, which is a number
of seconds or an HTTP date (RFC 9110, 10.2.3); openai-python reads the same three.
"""

import math
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime


def retry_after_s(headers: Mapping[str, str], *, now_s: float) -> float | None:
    """Return the wait in seconds, at least 0; None when no header says one.

    Args:
        headers: Reply headers, names in lower case.
        now_s: Wall time in seconds since the epoch, for an HTTP date.
    """
    millis = _number(headers.get("retry-after-ms"))
    if millis is not None:
        return millis / 1000
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None:
        return seconds
    return None if text is None else _date_wait(text, now_s)


def should_retry(headers: Mapping[str, str]) -> bool | None:
    """Return what ``x-should-retry`` says; None when it is absent or says neither."""
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").strip().lower())


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is not None and math.isfinite(value) and value >= 0 else None


def _date_wait(text: str, now_s: float) -> float | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return None
    if date.tzinfo is None:  # "-0000" parses to a naive UTC time
        date = date.replace(tzinfo=UTC)
    try:
        return max(0.0, date.timestamp() - now_s)
    except (OverflowError, OSError):
        return None
