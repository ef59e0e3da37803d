"""Whose requests come when: seeded Poisson arrivals, and prompts where no workload is given.

Knows nothing of HTTP. Seconds and tokens.
"""

import math
import random
from collections.abc import Sequence

from failsoft.engine.bench.workload import Item
from failsoft.errors import ConfigError

MAX_REQUESTS = 20_000
"""Each is a task and a connection of this process."""

# fmt: off
_WORDS = (
    "the", "river", "town", "letter", "morning", "answer", "small", "engine", "garden", "light",
    "winter", "paper", "road", "story", "number", "question", "window", "market", "quiet",
    "green", "water", "teacher", "music", "stone", "bread", "early", "summer", "train", "bridge",
    "harbour", "apple", "field", "doctor", "island", "picture", "corner", "evening",
)
# fmt: on
_PROMPT_WORDS = (15, 150)
_OUTPUT_TOKENS = (16, 128)


def parse_rates(text: str) -> list[float]:
    """Return requests per second from a comma-separated list; ``inf`` sends all at once.

    Raises:
        ConfigError: One of them is no rate.

    >>> parse_rates("1,2.5,inf")
    [1.0, 2.5, inf]
    """
    rates = []
    for part in text.split(","):
        try:
            rate = float(part)
        except ValueError:
            rate = math.nan
        if not rate > 0:
            raise ConfigError(
                key="--rate", value=part.strip(), allowed="requests per second above 0, or inf"
            )
        rates.append(rate)
    return rates


def arrivals_s(*, rate_rps: float, count: int, seed: int) -> list[float]:
    """Return when each request is sent, in seconds from the start; the first at once.

    Gaps are exponential with mean 1 / *rate_rps*, so that the count in any second is Poisson.

    >>> arrivals_s(rate_rps=math.inf, count=2, seed=1)
    [0.0, 0.0]
    """
    rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
    stamps = [0.0]
    while len(stamps) < count:
        gap_s = 0.0 if math.isinf(rate_rps) else rng.expovariate(rate_rps)
        stamps.append(stamps[-1] + gap_s)
    return stamps[:count]


def made_up_items(*, count: int, seed: int) -> list[Item]:
    """Return texts of ragged length; their replies may end before their limit."""
    rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
    return [
        Item(
            text="Tell a story with these words: "
            + " ".join(rng.choices(_WORDS, k=rng.randint(*_PROMPT_WORDS))),
            output_len=rng.randint(*_OUTPUT_TOKENS),
            is_exact=False,
        )
        for _ in range(count)
    ]


def taken(items: Sequence[Item], count: int) -> list[Item]:
    """Return *count* of *items* in their order, from the start again where they run out."""
    return [items[index % len(items)] for index in range(count)]
