"""The front's own word: ``GET /internal/status``, one JSON document of schema 1.

Knows nothing of verdicts. Fields that a newer front adds are ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from failsoft.dashboard.sources.local_http import LocalHttp
from failsoft.dashboard.standing import Rung, Unknown
from failsoft.run_state import FrontState, Reload


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontLadder:
    """One ladder as the front has it."""

    name: str
    budget_refused_total: int
    rungs: tuple[Rung, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontReading:
    """What the front says."""

    schema: Literal[1]
    pid: int
    started_at_ms: int
    is_draining: bool
    num_open_calls: int
    settings_read_at_ms: int
    ladders: tuple[FrontLadder, ...]
    dropped_records: Mapping[str, int]
    last_reload: Reload | None = None


_document = TypeAdapter(FrontReading)


def ask_front(state: FrontState, http: LocalHttp) -> FrontReading | Unknown:
    """Return what the front of *state* says, or why it says nothing."""
    url = f"{state.url.rstrip('/').removesuffix('/v1')}/internal/status"
    got = http.get(url, token=state.token)
    if isinstance(got, Unknown):
        return got
    if got.status != 200:
        return Unknown(reason=f"its status page answers HTTP {got.status}")
    try:
        return _document.validate_json(got.text)
    except ValidationError as exc:
        where = ".".join(str(part) for part in exc.errors()[0]["loc"]) or "the whole"
        return Unknown(
            reason=f"its status is no document of schema 1 (at {where}); "
            "is it another version of failsoft? restart `failsoft up`"
        )
