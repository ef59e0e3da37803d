"""What the last fingerprint check of each endpoint said: a small file for pages and terminals.

``<home>/run/processes/fingerprints.json``, private and replaced as a whole; written by the ops
process, which also reads it at its start, so that no change is told twice. Stamps are UTC
epoch milliseconds.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from failsoft.config.run_files import is_private, run_folder, write_private_json

SCHEMA = 1

Verdict = Literal["same", "changed", "unclear", "new"]
"""``new``: there was nothing to compare with, so this is the reference now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FingerprintStanding:
    """One endpoint."""

    endpoint: str
    subject: str | None
    """What it was compared as: a version digest and a machine, joined by ``@``, or the source
    of an endpoint elsewhere."""
    verdict: Verdict | None
    """Of the last check that came to its end; None while none did."""
    why: str | None
    """One line, with figures."""
    verdict_at_ms: int | None
    since_ms: int | None
    """When the verdict became this one."""
    trouble: str | None
    """Why the last check did not come to its end; None when it did."""
    checked_at_ms: int
    took_s: float | None = None
    mean: float | None = None
    """Mean distance from the reference, in nats."""
    mean_limit: float | None = None
    is_followed: bool = False
    """Whether what it had changed to became what the next check compares it with."""
    told_at_ms: tuple[int, ...] = ()
    """When events told of it, within the last day."""
    num_failed_references: int = 0
    """How often in a row a reference of it was begun and broken off, or showed nothing."""
    next_reference_at_ms: int | None = None
    """Until when none is begun, for that reason; None when one may be."""


def write_fingerprints(home: Path, standings: Mapping[str, FingerprintStanding]) -> None:
    """Publish what the checks said, by endpoint."""
    content = {"schema": SCHEMA, "endpoints": [asdict(one) for one in standings.values()]}
    write_private_json(_path(home), content)


def read_fingerprints(home: Path) -> dict[str, FingerprintStanding]:
    """Return what the checks said, by endpoint; empty where there is no such file."""
    path = _path(home)
    try:
        if not is_private(path.stat()):
            return {}
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw["schema"] != SCHEMA:
            return {}
        found = [
            FingerprintStanding(**{**one, "told_at_ms": tuple(one.get("told_at_ms", ()))})
            for one in raw["endpoints"]
        ]
        return {standing.endpoint: standing for standing in found}
    except (OSError, ValueError, TypeError, KeyError):
        return {}  # absent, or written by another failsoft


def _path(home: Path) -> Path:
    return run_folder(home) / "processes" / "fingerprints.json"
