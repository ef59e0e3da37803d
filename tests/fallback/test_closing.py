"""Closing a client: what runs ends, what ended has its row, and nothing is left over."""

import asyncio
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from failsoft.config.settings import Settings, StoreConfig
from failsoft.errors import ClientClosedError
from failsoft.fallback.async_client import AsyncClient
from failsoft.fallback.background_loop import BackgroundLoop
from failsoft.fallback.client import Client
from failsoft.store import Store
from tests.fallback.fault_server import FaultServer
from tests.fallback.rig import ASK, PATIENT, TWICE, make_client, make_rig, settings_for


def stored(folder: Path, server: FaultServer) -> Settings:
    """Return a ladder over *server* that records into *folder*."""
    settings = settings_for(("a", server.url), retry=TWICE, timeouts=PATIENT, deadline_s=30)
    return replace(settings, store=StoreConfig(url=f"sqlite:///{folder}/failsoft.db"))


def rows(settings: Settings) -> list[tuple[str, int]]:
    """Return each call's outcome and how many rows its ledger has."""
    with Store(settings.store) as store:
        calls = store.reader.calls()
        return [(call.outcome, len(store.reader.attempts(call.call_id))) for call in calls]


def wait_for_hits(server: FaultServer, count: int) -> None:
    """Return once *count* requests were read."""
    until_s = time.monotonic() + 5
    while server.hits < count:
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_closing_a_client_ends_calls_in_other_threads(
    server_a: FaultServer, tmp_path: Path
) -> None:
    """Each hears that the client was closed and has its rows; nobody is left waiting."""
    server_a.plan(default="stall")
    settings = stored(tmp_path, server_a)
    client = Client(settings, environ={})
    errors: list[BaseException] = []

    def run(call: Any) -> None:
        try:
            call()
        except BaseException as exc:  # noqa: BLE001 - whatever ends it
            errors.append(exc)

    calls = (
        lambda: client.chat(ASK, idempotency_key="k"),
        lambda: list(client.stream(ASK)),
    )
    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    wait_for_hits(server_a, 2)
    client.close()
    for thread in threads:
        thread.join(2)

    assert not any(thread.is_alive() for thread in threads)
    assert [type(error) for error in errors] == [ClientClosedError] * 2
    assert server_a.wait_closed(2) is not None
    assert rows(settings) == [("cancelled", 1)] * 2


def test_closing_an_async_client_breaks_its_calls_off_and_keeps_their_rows(
    server_a: FaultServer, tmp_path: Path
) -> None:
    """A call with an idempotency key used to end in a coroutine that nobody awaited."""
    server_a.plan(default="stall")
    settings = stored(tmp_path, server_a)

    async def run() -> BaseException | None:
        client = AsyncClient(settings, environ={})
        call = asyncio.create_task(client.chat(ASK, idempotency_key="k"))
        await asyncio.to_thread(wait_for_hits, server_a, 1)
        await client.aclose()
        await asyncio.wait({call}, timeout=2)
        return call.exception()

    error = asyncio.run(run())

    assert isinstance(error, ClientClosedError)
    assert rows(settings) == [("failed", 1)]


def test_a_stream_left_by_another_task_has_one_row(server_a: FaultServer) -> None:
    """Its reader waits for a delta meanwhile, and hears of it."""
    server_a.plan(default={"do": "stall", "at": "token"})
    rig = make_rig(settings_for(("a", server_a.url), timeouts=PATIENT))

    async def run() -> None:
        async with rig.client as client:
            stream = client.stream(ASK)

            async def read() -> None:
                async for _ in stream:
                    pass

            reader = asyncio.create_task(read())
            await asyncio.to_thread(wait_for_hits, server_a, 1)
            await asyncio.sleep(0.05)
            await stream.aclose()
            await asyncio.wait({reader}, timeout=2)
            assert reader.done()
            reader.exception()

    asyncio.run(run())

    assert [call.outcome for call in rig.recorder.records.calls] == ["cancelled"]
    assert rig.ledger == ["a cancelled"]


def test_a_closed_client_refuses_calls(server_a: FaultServer) -> None:
    """With the next step in the message."""
    client = make_client(settings_for(("a", server_a.url), timeouts=PATIENT))
    client.close()
    client.close()

    for call in (client.chat, client.stream):
        with pytest.raises(ClientClosedError, match="make a new one"):
            call(ASK)


def test_a_closed_background_loop_takes_no_work_and_starts_no_thread() -> None:
    """A call that came while the client closed used to wait for ever on a loop that stood still."""

    async def one() -> int:
        return 1

    async def nothing() -> None:
        """Do nothing."""

    loop = BackgroundLoop()
    assert loop.run(one()) == 1
    loop.close(nothing())
    loop.close(nothing())
    num_threads = threading.active_count()

    with pytest.raises(ClientClosedError):
        loop.run(one())
    assert threading.active_count() == num_threads


def test_calls_that_race_a_close_all_end(server_a: FaultServer) -> None:
    """Whichever comes first: an answer, or the news that the client was closed."""
    for _ in range(10):
        client = make_client(settings_for(("a", server_a.url), timeouts=PATIENT))
        ends: list[str] = []

        def call(client: Client = client, ends: list[str] = ends) -> None:
            try:
                while True:
                    client.chat(ASK)
            except ClientClosedError:
                ends.append("closed")

        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.01)
        client.close()
        for thread in threads:
            thread.join(5)

        assert ends == ["closed"] * 4
