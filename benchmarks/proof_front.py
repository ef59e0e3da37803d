"""Every line that front and supervisor must hold, measured and printed: ``make proof-front``."""

from collections.abc import Iterator
from functools import partial

from benchmarks import (
    front_clients,
    front_lifecycle,
    front_overhead,
    front_recovery,
    front_streams,
)
from benchmarks.proof import Line, Measurement, prove, quieten
from benchmarks.up_session import running_up


def measure_deaths(*, is_short: bool) -> Iterator[Line]:
    """Yield the lines about one ``failsoft up`` whose engines die."""
    with running_up(slots=("primary", "small")) as up:
        yield from front_clients.measure_openai(up)
        yield from front_recovery.measure_kill(up, is_short=is_short)
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


if __name__ == "__main__":
    quieten()
    prove("Front and supervisor", measurements, about=__doc__, has_speed=True)
