"""Every line that moves of pins and fingerprints must hold: ``make proof-rollback``."""

from functools import partial

from benchmarks import rollback_faults, rollback_fingerprint, rollback_move
from benchmarks.proof import Measurement, prove, quieten


def measurements(*, is_short: bool) -> list[tuple[str, Measurement]]:
    """Return what to measure, in order; titles of what needs a quiet machine say Speed."""
    return [
        ("1. There and back under callers", partial(rollback_move.measure, is_short=is_short)),
        ("2. A fault in each state", partial(rollback_faults.measure, is_short=is_short)),
        ("3. Fingerprints", partial(rollback_fingerprint.run, is_short)),
    ]


if __name__ == "__main__":
    quieten()
    prove("Rollback", measurements, about=__doc__, has_speed=True)
