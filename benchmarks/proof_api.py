"""Every line that the engine's API and its bench must hold: ``make proof-api``."""

import os
from functools import partial

from benchmarks.proof import Measurement, prove
from failsoft.engine.cpu_defaults import set_cpu_defaults

set_cpu_defaults(os.environ)  # before torch is imported, as the server does


def measurements(*, is_short: bool) -> list[tuple[str, Measurement]]:
    """Return what to measure, in order; titles of what needs a quiet machine say Speed."""
    from benchmarks import (
        api_bench,
        api_cases,
        api_clients,
        api_fuzz,
        api_logprobs,
        api_structured,
    )

    # They are tests, which CI has run by then.
    cases: list[tuple[str, Measurement]] = (
        [] if is_short else [("1. Cases from bug reports", api_cases.measure)]
    )
    return [
        *cases,
        ("1. Fuzzing the API", partial(api_fuzz.measure, is_short=is_short)),
        ("2. Real clients", partial(api_clients.measure, is_short=is_short)),
        (
            "3. Log probabilities, seeds, forced bytes",
            partial(api_logprobs.measure, is_short=is_short),
        ),
        ("4. Speed: the bench", partial(api_bench.measure, is_short=is_short)),
        ("5. Random schemas", partial(api_structured.measure_schemas, is_short=is_short)),
        ("5. Speed: masks", partial(api_structured.measure_cost, is_short=is_short)),
    ]


if __name__ == "__main__":
    prove("The API", measurements, about=__doc__, has_speed=True)
