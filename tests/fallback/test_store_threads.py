"""Threads that ask a store beside the event loop."""

import asyncio
import os

import pytest

from failsoft.errors import StoreError
from failsoft.fallback.store_threads import StoreThreads


def test_the_stores_own_error_comes_through() -> None:
    """As raised."""

    def fail() -> None:
        raise StoreError("gone", url="sqlite://")

    async def run() -> None:
        with pytest.raises(StoreError, match="gone"):
            await StoreThreads().ask(fail, timeout_s=1)

    asyncio.run(run())


def test_what_was_started_is_finished_and_a_refusal_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Work beside a call never raises into it, also once the threads are closed."""
    threads = StoreThreads()
    done: list[int] = []

    def fail() -> None:
        raise StoreError("gone", url="sqlite://")

    async def run() -> None:
        threads.start(lambda: done.append(1), "not done")
        threads.start(fail, "refused")
        await threads.finish(timeout_s=5)
        threads.close()
        threads.start(lambda: done.append(2), "closed")

    asyncio.run(run())

    assert done == [1]
    assert [record.message for record in caplog.records] == ["refused", "closed"]


def test_a_forked_child_has_threads_of_its_own() -> None:
    """Its parent's do not run there."""
    threads = StoreThreads()
    assert asyncio.run(threads.ask(os.getpid, timeout_s=5)) == os.getpid()

    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if asyncio.run(threads.ask(os.getpid, timeout_s=5)) == os.getpid() else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == 0
