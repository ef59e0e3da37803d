"""What one check of an endpoint came to, as a standing tells it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from failsoft.fallback.fingerprint.records import FingerprintProof
from failsoft.fingerprint_status import Verdict

_VERDICTS: Mapping[bool | None, Verdict] = {True: "changed", False: "same", None: "unclear"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A verdict and its figures."""

    verdict: Verdict
    why: str
    took_s: float | None = None
    mean: float | None = None
    mean_limit: float | None = None


def found_by(proof: FingerprintProof) -> Found:
    """Return what a check that came to its end found."""
    comparison = proof.comparison
    if comparison is None:
        return Found(
            verdict="new", why="the first look at it: its reference is kept", took_s=proof.took_s
        )
    return Found(
        verdict=_VERDICTS[comparison.is_changed],
        why=comparison.why,
        took_s=proof.took_s,
        mean=comparison.mean,
        mean_limit=None if comparison.noise is None else comparison.noise.mean_limit,
    )
