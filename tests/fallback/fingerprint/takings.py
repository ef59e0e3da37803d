"""Takings made by hand: a model's numbers, and noise as a test says."""

import random
from collections.abc import Sequence

from failsoft.fallback.fingerprint.noise import NUM_TAKINGS
from failsoft.fallback.fingerprint.records import Answer, Method, Reported, Taking

NUM_POSITIONS = 40
"""Of each of `NUM_ANSWERS` answers."""
NUM_ANSWERS = 4
REPORTED = Reported(model="m", system_fingerprint="fp", version_digest="d" * 64)


def scored(
    *, noise: float = 0.0, shift: float = 0.0, seed: int = 0, digest: str | None = "d" * 64
) -> Taking:
    """Return scored texts: the model's numbers, *noise* (a standard deviation) and a shift."""
    rng = random.Random(seed)
    answers = []
    for text in range(NUM_ANSWERS):
        tokens = tuple(f"t{text}.{position}" for position in range(NUM_POSITIONS))
        numbers = tuple(
            -2.0 - 0.05 * position + rng.gauss(0, noise) + shift * (-1) ** position
            for position in range(NUM_POSITIONS)
        )
        answers.append(Answer(tokens=tokens, logprobs=numbers, margins=()))
    return taking(answers, digest=digest)


def several(noise: float, *, first_seed: int = 100) -> list[Taking]:
    """Return the takings of a reference with *noise*."""
    return [scored(noise=noise, seed=first_seed + number) for number in range(NUM_TAKINGS)]


def greedy(*texts: str, margins: Sequence[float | None] | None = None) -> Taking:
    """Return greedy answers, a token for each letter; *margins* are the same for all."""
    answers = [
        Answer(
            tokens=tuple(text),
            logprobs=tuple(-0.5 for _ in text),
            margins=tuple(margins or [3.0] * len(text))[: len(text)],
        )
        for text in texts
    ]
    return taking(answers, method=Method.GREEDY)


def plain(*texts: str) -> Taking:
    """Return answers without numbers."""
    answers = [Answer(tokens=(text,), logprobs=(), margins=()) for text in texts]
    return taking(answers, method=Method.TEXT)


def taking(
    answers: Sequence[Answer], *, method: Method = Method.SCORED, digest: str | None = "d" * 64
) -> Taking:
    """Return a taking of *answers*."""
    reported = Reported(model="m", system_fingerprint="fp", version_digest=digest)
    return Taking(method=method, answers=tuple(answers), reported=reported, took_s=0.1)
