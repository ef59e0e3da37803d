"""The front's own word: ``GET /internal/status``, as `failsoft.front_status` has it.

Knows nothing of verdicts. Fields that a newer front adds are ignored.
"""

from pydantic import TypeAdapter, ValidationError

from failsoft.dashboard.sources.local_http import LocalHttp
from failsoft.dashboard.standing import Unknown
from failsoft.front_status import FrontStatus
from failsoft.run_state import FrontState

_document = TypeAdapter(FrontStatus)


def ask_front(state: FrontState, http: LocalHttp) -> FrontStatus | Unknown:
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
