"""When a reference that was broken off is begun again. Pure; UTC epoch milliseconds.

A reference costs an endpoint elsewhere eight checks. One that refuses halfway, as a rate limit
does, would be asked them at each round: it is left alone for a while that doubles.
"""

from dataclasses import replace

from failsoft.fingerprint_status import FingerprintStanding

FIRST_MS = 600_000
"""After the first that was broken off."""
MAX_MS = 6 * 3_600_000


def must_wait(standing: FingerprintStanding, *, now_ms: int) -> bool:
    """Return whether no reference may be begun yet."""
    until_ms = standing.next_reference_at_ms
    # A clock that was set back must not make a wait longer than any is.
    return until_ms is not None and 0 < until_ms - now_ms <= MAX_MS


def backed_off(standing: FingerprintStanding, *, now_ms: int) -> FingerprintStanding:
    """Return *standing* after one more that was broken off."""
    number = standing.num_failed_references + 1
    wait_ms = min(FIRST_MS * 2 ** min(number - 1, 16), MAX_MS)
    return replace(standing, num_failed_references=number, next_reference_at_ms=now_ms + wait_ms)


def carried(
    standing: FingerprintStanding, before: FingerprintStanding | None
) -> FingerprintStanding:
    """Return *standing* with the wait of *before*, if both are of one subject."""
    if before is None or before.subject != standing.subject:
        return standing
    return replace(
        standing,
        num_failed_references=before.num_failed_references,
        next_reference_at_ms=before.next_reference_at_ms,
    )


def ended(standing: FingerprintStanding) -> FingerprintStanding:
    """Return *standing* after a reference that was taken."""
    return replace(standing, num_failed_references=0, next_reference_at_ms=None)
