"""Every line that front and supervisor must hold, measured and printed: ``make proof-front``."""

import argparse
import logging
from collections.abc import Iterator
from functools import partial

from benchmarks import (
    front_clients,
    front_lifecycle,
    front_overhead,
    front_recovery,
    front_streams,
)
from benchmarks.proof import Line, Measurement, finish, run_proof
from benchmarks.up_session import running_up


def measure_deaths(*, is_short: bool) -> Iterator[Line]:
    """Yield the lines about one ``failsoft up`` whose engines die."""
    with running_up(slots=("primary", "small")) as up:
        yield from front_clients.measure_openai(up)
        yield from front_recovery.measure_kill(up, num_rounds=1 if is_short else 5)
        yield from front_recovery.measure_silence(up)
        yield from front_recovery.measure_both_dead(up)


def measure_life() -> Iterator[Line]:
    """Yield the lines about one ``failsoft up`` with tenants, from reload to drain."""
    with front_clients.running_up_with_keys() as (up, path):
        alpha = front_clients.key_of("alpha")
        yield from front_lifecycle.measure_reload(up, path, alpha)
        yield from front_clients.measure_tenants(up)
        yield from front_lifecycle.measure_drain(up, alpha)


def measurements(*, is_short: bool) -> list[tuple[str, Measurement]]:
    """Return what to measure, in order; titles of what needs a quiet machine say Speed."""
    return [
        ("1, 3. The official client; engines die", partial(measure_deaths, is_short=is_short)),
        ("2. Speed: overhead", partial(front_overhead.measure, is_short=is_short)),
        ("2. Speed: streams", partial(front_streams.measure, is_short=is_short)),
        ("4, 5. Reload, tenants, drain", measure_life),
    ]


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
