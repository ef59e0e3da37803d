"""Several takings into a reference that knows its own noise, and the limits that follow.

Pure. The argument for the limits, and their false-alarm chance, is ADR 31.
"""

import math
import statistics
from collections import Counter
from collections.abc import Sequence

from failsoft.errors import FingerprintError
from failsoft.fallback.fingerprint.distance import distances, shared_length
from failsoft.fallback.fingerprint.probes import PROBES_ID
from failsoft.fallback.fingerprint.records import (
    Answer,
    Method,
    Noise,
    ProbeReference,
    Reference,
    Taking,
)

NUM_TAKINGS = 8
"""Takings of a reference."""

MEAN_FLOOR = 0.005
"""A mean distance below this is never a change, in nats: no reply would show it."""
WORST_FLOOR = 0.1
"""The same of the worst position."""

_T = 7.063
"""Student's t with `NUM_TAKINGS` - 1 degrees of freedom: one value in 10,000 lies above."""
_MEAN_SPREAD = 0.25
"""The spread that is assumed at least, as a share of the mean: eight takings may agree by luck."""
_WORST_SPREAD = 0.5
"""The same for the worst position: an extreme of many spreads wider than their mean."""
_MARGIN_SAFETY = 2.0


def make_reference(takings: Sequence[Taking]) -> Reference:
    """Return the reference that *takings* give together.

    Args:
        takings: `NUM_TAKINGS` of them, of one method, at different batch make-ups.

    Raises:
        FingerprintError: They are of several tokenizers or versions: something changed meanwhile.
        ValueError: There are not `NUM_TAKINGS`, or they are of several methods.
    """
    if len(takings) != NUM_TAKINGS or len({taking.method for taking in takings}) != 1:
        raise ValueError(f"a reference needs {NUM_TAKINGS} takings of one method")
    if len({taking.reported.version_digest for taking in takings}) > 1:
        raise FingerprintError("the version changed under its reference", is_down=True)
    method = takings[0].method
    columns = list(zip(*(taking.answers for taking in takings), strict=True))
    if method is Method.SCORED and any(len({a.tokens for a in column}) > 1 for column in columns):
        raise FingerprintError("one text came as different tokens; take the reference again")
    probes = tuple(_probe(column) for column in columns)
    return Reference(
        probes_id=PROBES_ID,
        method=method,
        probes=probes,
        noise=None if method is Method.TEXT else _noise(probes, takings),
        num_takings=len(takings),
        reported=takings[-1].reported,
    )


def _probe(answers: Sequence[Answer]) -> ProbeReference:
    """Return what most of *answers* say, position by position."""
    counts = Counter(answer.tokens for answer in answers)
    common = counts.most_common(1)[0][0]
    agreeing = [
        [answer for answer in answers if shared_length(common, answer.tokens) > position]
        for position in range(len(common))
    ]
    length = sum(2 * len(several) >= len(answers) for several in agreeing)
    # Of any, not of the first: one answer may have come empty.
    has_logprobs = any(answer.logprobs for answer in answers)
    has_margins = any(answer.margins for answer in answers)
    kept = list(enumerate(agreeing[:length]))
    return ProbeReference(
        tokens=common[:length],
        means=tuple(_mean([a.logprobs[i] for a in of]) for i, of in kept if has_logprobs),
        margins=tuple(_mean([a.margins[i] or 0.0 for a in of]) for i, of in kept if has_margins),
        is_stable=len(counts) == 1,
    )


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values)


def _noise(probes: tuple[ProbeReference, ...], takings: Sequence[Taking]) -> Noise:
    # How far each lies from the mean of the *others*: from their common mean it is less.
    others = len(takings) / (len(takings) - 1)
    found = [
        distance
        for taking in takings
        if (distance := distances(probes, taking.answers)) is not None
    ]
    means = [others * distance.mean for distance in found] or [0.0]
    worst = [others * distance.worst for distance in found] or [0.0]
    worst_limit = max(WORST_FLOOR, limit(worst, least_spread=_WORST_SPREAD))
    parted = [m for taking in takings for m in _parted_margins(probes, taking)]
    return Noise(
        mean=max(means),
        worst=max(worst),
        mean_limit=max(MEAN_FLOOR, limit(means, least_spread=_MEAN_SPREAD)),
        worst_limit=worst_limit,
        margin_limit=max(worst_limit, _MARGIN_SAFETY * max(parted, default=0.0)),
    )


def limit(values: Sequence[float], *, least_spread: float) -> float:
    """Return what the next value exceeds once in 10,000 times, if *values* are normal.

    The upper prediction limit for one further value, ``mean + t s sqrt(1 + 1/n)`` (Hahn and
    Meeker, Statistical Intervals, ch. 4), with a spread of at least *least_spread* times the mean.
    """
    mean = _mean(values)
    spread = max(statistics.stdev(values) if len(values) > 1 else 0.0, least_spread * mean)
    return mean + _T * spread * math.sqrt(1 + 1 / len(values))


def _parted_margins(probes: tuple[ProbeReference, ...], taking: Taking) -> list[float]:
    """Return the reference's margins where *taking* left it."""
    found = []
    for probe, answer in zip(probes, taking.answers, strict=True):
        position = shared_length(probe.tokens, answer.tokens)
        if position < len(probe.margins):
            found.append(probe.margins[position])
    return found
