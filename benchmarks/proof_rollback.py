"""Every line that moves of pins and fingerprints must hold: ``make proof-rollback``."""

from functools import partial

from benchmarks import rollback_drain, rollback_faults, rollback_fingerprint, rollback_move
from benchmarks.proof import Measurement, prove, quieten


def measurements(*, is_short: bool) -> list[tuple[str, Measurement]]:
    """Return what to measure, in order; titles of what needs a quiet machine say Speed."""
    parts: list[tuple[str, Measurement]] = [
        ("1. There and back under callers", partial(rollback_move.measure, is_short=is_short)),
        ("2. A fault in each state", partial(rollback_faults.measure, is_short=is_short)),
        ("3. Fingerprints", partial(rollback_fingerprint.run, is_short)),
    ]
    if not is_short:  # two minutes; the tests of left moves hold it in CI
        parts.append(("4. A rollback while the move drains", rollback_drain.measure))
    return parts


if __name__ == "__main__":
    quieten()
    prove("Rollback", measurements, about=__doc__, has_speed=True)
