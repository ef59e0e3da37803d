"""A web server that loads the app and forks: each child records on its own."""

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from failsoft.call_records import CallRecord
from failsoft.config.settings import StoreConfig
from failsoft.reply_records import CachedReply
from failsoft.store import Store

MakeCall = Callable[..., CallRecord]
MakeReply = Callable[..., CachedReply]

# Forking with threads alive is what this part must survive.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def in_child(work: Callable[[], bool]) -> int:
    """Fork; the child runs *work* and exits 0 when it returned True. Return the child's id."""
    child = os.fork()
    if child:
        return child
    try:
        code = 0 if work() else 1
    except BaseException:  # noqa: BLE001 - a child must never return into pytest
        code = 2
    os._exit(code)


def exit_codes(children: list[int], *, timeout_s: float = 30) -> list[int]:
    """Wait for *children*; one that hangs is killed and counts as -9."""
    codes = []
    deadline = time.monotonic() + timeout_s
    for child in children:
        done, status = os.waitpid(child, os.WNOHANG)
        while not done and time.monotonic() < deadline:
            time.sleep(0.01)
            done, status = os.waitpid(child, os.WNOHANG)
        if not done:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        codes.append(os.waitstatus_to_exitcode(status))
    return codes


def test_children_and_parent_record_and_nothing_is_lost_or_doubled(
    store_config: StoreConfig, make_call: MakeCall, make_reply: MakeReply
) -> None:
    """Four forks under load; what the parent had queued is written by the parent alone."""
    with Store(store_config) as store:

        def child_work(child: int) -> bool:
            for i in range(300):
                store.recorder.record_call(make_call(call_id=f"child-{child}-{i}"))
            store.close()
            return store.stats().written_total == {"call": 300}

        children = []
        for child in range(4):
            for i in range(300):
                store.recorder.record_call(make_call(call_id=f"parent-{child}-{i}"))
            children.append(in_child(lambda child=child: child_work(child)))  # type: ignore[misc]
        codes = exit_codes(children)
        assert store.flush(20)

        assert codes == [0, 0, 0, 0]
        assert store.reader.stats().num_rows["calls"] == 4 * 300 + 4 * 300
        assert store.stats().written_total == {"call": 4 * 300}


def test_a_fork_in_the_middle_of_writing_leaves_the_child_no_lock(
    sqlite_config: StoreConfig, make_call: MakeCall
) -> None:
    """SQLite's lock table is in memory: a child that inherits a held lock waits for ever."""
    stop = threading.Event()
    with Store(sqlite_config) as store:

        def load() -> None:
            num = 0
            while not stop.is_set():
                store.recorder.record_call(make_call(call_id=f"parent-{num}"))
                num += 1
                if num % 500 == 0:
                    time.sleep(0.005)

        thread = threading.Thread(target=load)
        thread.start()

        def child_work(child: int) -> bool:
            store.recorder.record_call(make_call(call_id=f"child-{child}"))
            return store.flush(15) and store.reader.call(f"child-{child}") is not None

        try:
            codes = []
            for child in range(15):
                time.sleep(0.01)
                codes += exit_codes([in_child(lambda child=child: child_work(child))])  # type: ignore[misc]
        finally:
            stop.set()
            thread.join()

    assert codes == [0] * 15


def test_a_child_serves_cached_replies_and_claims_keys(
    store_config: StoreConfig, make_reply: MakeReply
) -> None:
    """Its connections are its own."""
    with Store(store_config) as store:
        assert store.replies is not None
        store.replies.put(make_reply("k"))
        assert store.flush(10)

        def child_work() -> bool:
            assert store.replies is not None
            entry = store.idempotency.begin("k", "t", "f", lease_s=10)
            store.replies.put(make_reply("child"))
            is_served = store.replies.get("k") is not None
            return is_served and store.idempotency.finish(entry, "reply") and store.flush(10)

        assert exit_codes([in_child(child_work)]) == [0]
        assert store.replies.get("child") is not None
        assert store.idempotency.begin("k", "t", "f", lease_s=10).reply_json == "reply"
