"""Asks several sources at the same moment; one that is late keeps nobody waiting.

Knows nothing of what is asked. Units: seconds.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from failsoft.dashboard.standing import Unknown

T = TypeVar("T")


def together(asks: Mapping[str, Callable[[], T]], *, limit_s: float) -> dict[str, T | Unknown]:
    """Return what each ask returns; Unknown for one that takes longer than *limit_s*.

    Each runs on a thread of its own, which is left behind when it is late: it must end by
    itself. An ask translates the errors it expects; any other is raised here.
    """
    answers: dict[str, T] = {}
    bugs: list[BaseException] = []

    def run(name: str, ask: Callable[[], T]) -> None:
        try:
            answers[name] = ask()
        except BaseException as exc:  # noqa: BLE001 - raised again on the caller's thread
            bugs.append(exc)

    threads = {
        name: threading.Thread(target=run, args=(name, ask), name=f"ask-{name}", daemon=True)
        for name, ask in asks.items()
    }
    for thread in threads.values():
        thread.start()
    deadline_s = time.monotonic() + limit_s
    for thread in threads.values():
        thread.join(max(0.0, deadline_s - time.monotonic()))
    if bugs:
        raise bugs[0]
    late = Unknown(reason=f"it did not answer within {limit_s:g} s")
    return {name: answers.get(name, late) for name in asks}
