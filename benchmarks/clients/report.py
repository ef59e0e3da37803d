"""How a client's script tells what it saw; knows neither failsoft nor a client."""

import json
import sys
from collections.abc import Callable, Iterator

Check = Callable[[str, str], Iterator[tuple[str, str, bool]]]
"""(server URL without path, model) to (what must hold, what was seen, whether it holds)."""


def run(checks: list[Check]) -> None:
    """Run *checks* on the server and model of the command line, one after the other.

    A check that raises is a failed one: the others still run.
    """
    url, model = sys.argv[1:3]
    for check in checks:
        try:
            for must_hold, figure, has_passed in check(url, model):
                _tell(must_hold, figure, has_passed)
        except Exception as exc:  # noqa: BLE001 what a client raises is what we want to know
            _tell(check.__name__.replace("_", " "), f"{type(exc).__name__}: {exc}"[:500], False)


def _tell(must_hold: str, figure: str, has_passed: bool) -> None:
    told = {"must_hold": must_hold, "figure": figure, "has_passed": has_passed}
    print(json.dumps(told), flush=True)
