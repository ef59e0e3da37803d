"""A reference as JSON, and back. Knows nothing of where it is kept."""

import json
from dataclasses import asdict
from typing import Any

from failsoft.fallback.fingerprint.probes import PROBES_ID
from failsoft.fallback.fingerprint.records import (
    Method,
    Noise,
    ProbeReference,
    Reference,
    Reported,
)
from failsoft.fallback.fingerprint.wire import num_probes

SCHEMA = 1
_DIGITS = 6
"""Kept after the point: a hundredth of the smallest limit is 2e-5."""


def to_json(reference: Reference) -> str:
    """Return *reference* as a JSON object."""
    raw = asdict(reference)
    for probe in raw["probes"]:
        for name in ("means", "margins"):
            probe[name] = [round(value, _DIGITS) for value in probe[name]]
    return json.dumps(raw)


def from_json(text: str) -> Reference | None:
    """Return the reference of *text*; None when it is of other probes, spoilt, or none at all."""
    try:
        raw: dict[str, Any] = json.loads(text)
        if raw["probes_id"] != PROBES_ID:
            return None
        reference = Reference(
            probes_id=raw["probes_id"],
            method=Method(raw["method"]),
            probes=tuple(_probe(probe) for probe in raw["probes"]),
            noise=None if raw["noise"] is None else Noise(**raw["noise"]),
            num_takings=raw["num_takings"],
            reported=Reported(**raw["reported"]),
        )
        return reference if _is_whole(reference) else None
    except (KeyError, TypeError, ValueError):
        return None


def _is_whole(reference: Reference) -> bool:
    """Return whether every part has the length that comparing relies on."""
    is_text = reference.method is Method.TEXT
    return (
        len(reference.probes) == num_probes(reference.method)
        and (reference.noise is None) == is_text
        and all(
            len(probe.means) == (0 if is_text else len(probe.tokens))
            and len(probe.margins) in (0, len(probe.tokens))
            for probe in reference.probes
        )
    )


def _probe(raw: dict[str, Any]) -> ProbeReference:
    return ProbeReference(
        tokens=tuple(raw["tokens"]),
        means=tuple(raw["means"]),
        margins=tuple(raw["margins"]),
        is_stable=raw["is_stable"],
    )
