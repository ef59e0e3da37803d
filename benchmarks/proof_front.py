"""Every line that front and supervisor must hold, measured and printed: ``make proof-front``."""

import argparse
import logging
from functools import partial

from benchmarks import (
    front_clients,
    front_lifecycle,
    front_overhead,
    front_recovery,
    front_streams,
)
from benchmarks.proof import Measurement, finish, run_proof


def measurements(*, is_short: bool) -> list[tuple[str, Measurement]]:
    """Return what to measure, in order; titles of what needs a quiet machine say Speed."""
    kill = partial(front_recovery.measure_kill, num_rounds=1 if is_short else 5)
    parts: list[tuple[str, Measurement]] = [
        ("1. kill -9 of the primary", kill),
        ("1. kill -9 of both engines", front_recovery.measure_both_dead),
        ("1. SIGSTOP of the primary", front_recovery.measure_silence),
        ("2. Speed: overhead", partial(front_overhead.measure, is_short=is_short)),
        ("2. Speed: streams", partial(front_streams.measure, is_short=is_short)),
        ("3. The official client", front_clients.measure_openai),
        ("4. Reload", front_lifecycle.measure_reload),
        ("4. Drain", front_lifecycle.measure_drain),
        ("5. Tenants", front_clients.measure_tenants),
    ]
    return parts


def main() -> None:
    """Run the proof."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="what CI repeats")
    parser.add_argument("--skip-speed", action="store_true", help="on a busy machine")
    parser.add_argument("--only", help="measure only headings that contain this")
    options = parser.parse_args()
    logging.getLogger("failsoft").setLevel(logging.ERROR)
    chosen = [
        (name, measure)
        for name, measure in measurements(is_short=options.short)
        if (not options.only or options.only.lower() in name.lower())
        and not (options.skip_speed and "Speed" in name)
    ]
    title = "Front and supervisor, in short" if options.short else "Front and supervisor"
    finish(run_proof(title, chosen))


if __name__ == "__main__":
    main()
