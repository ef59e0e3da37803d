"""One look for all who ask at about the same moment."""

import threading
import time
from itertools import count

from failsoft.dashboard.shared_look import SharedLook


def test_a_look_is_handed_out_until_it_is_too_old() -> None:
    """Its age counts from when it was begun."""
    now_s = [0.0]
    numbers = count()
    shared = SharedLook(lambda: next(numbers), max_age_s=1, clock=lambda: now_s[0])

    seen = []
    for now_s[0] in (0.0, 1.0, 1.1, 2.2):
        seen.append(shared())

    assert seen == [0, 0, 1, 2]


def test_who_comes_during_a_look_waits_for_it() -> None:
    """Ten pages at once are one look."""
    numbers = count()

    def look() -> int:
        time.sleep(0.05)  # longer than ten threads need to arrive
        return next(numbers)

    shared = SharedLook(look, max_age_s=60)
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.append(shared())) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert seen == [0] * 10


def test_a_change_waits_for_the_look_under_way_and_is_seen_at_once() -> None:
    """What it replaces is not in use any more when it is over."""
    begun, let_go = threading.Event(), threading.Event()
    seen: list[str] = []
    names = ["before"]

    def look() -> str:
        begun.set()
        let_go.wait(10)
        return names[-1]

    shared = SharedLook(look, max_age_s=60)
    looking = threading.Thread(target=lambda: seen.append(shared()))
    looking.start()
    begun.wait(10)
    changing = threading.Thread(target=lambda: shared.between(lambda: names.append("after")))
    changing.start()
    changing.join(0.05)

    was_waiting = changing.is_alive()
    let_go.set()
    looking.join()
    changing.join()

    assert was_waiting
    assert seen == ["before"]
    assert shared() == "after"
