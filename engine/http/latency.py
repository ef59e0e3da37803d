"""Where an answer's time went, in the header that browsers and proxies know for it.

``Server-Timing`` (W3C) holds names and milliseconds. Of several choices each part is the
longest one's, so the parts may add up to more than the answer took.
"""

from collections.abc import Sequence

from failsoft.records import RequestTiming

HEADER = "server-timing"


def split(timings: Sequence[RequestTiming]) -> dict[str, str]:
    """Return the header of an answer; what none of its choices had is left out."""
    parts: dict[str, list[float | None]] = {
        "queue": [timing.queue_s for timing in timings],
        "prefill": [timing.prefill_s for timing in timings],
        "decode": [timing.decode_s for timing in timings],
    }
    known = {
        name: max(found)
        for name, seconds in parts.items()
        if (found := [each for each in seconds if each is not None])
    }
    return {HEADER: ", ".join(f"{name};dur={each * 1000:.1f}" for name, each in known.items())}
