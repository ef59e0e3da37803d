"""What a fingerprint is made of. Frozen objects; nothing here acts.

Log probabilities and margins are natural (nats). A *position* is one token of one answer.
"""

from dataclasses import dataclass
from enum import StrEnum


class Method(StrEnum):
    """How an endpoint is asked; a reference and what it is compared with use the same."""

    SCORED = "scored"
    """Log probabilities of the fixed texts: nothing is sampled, so nothing can part by chance."""
    GREEDY = "greedy"
    """Answers at temperature 0 with the log probability of each token."""
    TEXT = "text"
    """Answers at temperature 0, text alone: tells other models apart, not other roundings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came for one probe."""

    tokens: tuple[str, ...]
    """Of a `Method.TEXT` answer one, the whole text."""
    logprobs: tuple[float, ...]
    """One for each token; empty under `Method.TEXT`."""
    margins: tuple[float | None, ...]
    """Under `Method.GREEDY`, for each token: how much likelier it was than the second
    choice; None where that was not told. Else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What an endpoint says of itself, beside an answer; None where it says nothing."""

    model: str | None
    system_fingerprint: str | None
    version_digest: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Taking:
    """Every probe, answered once."""

    method: Method
    answers: tuple[Answer, ...]
    """In the order of the probes."""
    reported: Reported
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReference:
    """What one probe's answer is, as several takings agree."""

    tokens: tuple[str, ...]
    """As far as at least half of the takings say the same."""
    means: tuple[float, ...]
    """Mean log probability of each token; empty under `Method.TEXT`."""
    margins: tuple[float, ...]
    """Under `Method.GREEDY`, the mean margin of each token; 0 where it was not told."""
    is_stable: bool
    """Whether all takings said the very same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How far an unchanged endpoint strays from its own reference, and what is too far.

    Distances are over all positions of a taking: the mean absolute difference, and the worst.
    """

    mean: float
    """Largest mean distance of one of the reference's takings from the others."""
    worst: float
    mean_limit: float
    """A mean distance above this is a change."""
    worst_limit: float
    margin_limit: float
    """A greedy answer that leaves the reference where this margin was exceeded is a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What an endpoint is compared with."""

    probes_id: str
    method: Method
    probes: tuple[ProbeReference, ...]
    noise: Noise | None
    """None under `Method.TEXT`."""
    num_takings: int
    reported: Reported

    @property
    def num_positions(self) -> int:
        """Positions that can be compared."""
        return sum(len(probe.means) for probe in self.probes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a taking says of an endpoint that has a reference."""

    is_changed: bool | None
    """None: it cannot tell."""
    why: str
    """One line, with figures."""
    mean: float | None = None
    worst: float | None = None
    noise: Noise | None = None
    """The reference's limits; None where none were looked at."""
    num_positions: int = 0
    is_by_chance: bool = False
    """Whether the next taking may well tell what this one cannot: greedy answers parted early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FingerprintProof:
    """What a running endpoint showed of its weights."""

    subject: str
    """`local_subject` of a version, or the source of an endpoint elsewhere."""
    is_new_reference: bool
    """There was none to compare with: this is it now."""
    comparison: Comparison | None
    """None when *is_new_reference*."""
    reported: Reported
    num_takings: int
    took_s: float

    @property
    def is_changed(self) -> bool | None:
        """Whether the weights are others than before; None when nobody can tell."""
        return None if self.comparison is None else self.comparison.is_changed
