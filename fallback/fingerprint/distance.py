"""How far a taking lies from a reference, over the positions that both have. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from failsoft.fallback.fingerprint.records import Answer, ProbeReference


class Distance(NamedTuple):
    """Absolute differences of log probabilities, in nats."""

    mean: float
    worst: float
    num_positions: int


def shared_length(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many tokens two answers share from their beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def distances(probes: Sequence[ProbeReference], answers: Sequence[Answer]) -> Distance | None:
    """Return how far *answers* lie from *probes*; None when they share no position."""
    found: list[float] = []
    for probe, answer in zip(probes, answers, strict=True):
        shared = shared_length(probe.tokens, answer.tokens)
        pairs = zip(probe.means[:shared], answer.logprobs[:shared], strict=True)
        found += [abs(mean - said) for mean, said in pairs]
    if not found:
        return None
    return Distance(sum(found) / len(found), max(found), len(found))
