"""A client under hardship: over a real store, with threads, forks, leavers and odd text."""

import asyncio
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from failsoft.call_records import CallRecord
from failsoft.config.settings import Settings, StoreConfig
from failsoft.errors import LadderExhaustedError
from failsoft.fallback.async_client import AsyncClient
from failsoft.fallback.client import Client
from failsoft.fallback.surroundings import Surroundings
from failsoft.store import Store
from tests.fallback.fault_server import FaultServer
from tests.fallback.rig import PATIENT, TWICE, settings_for

DOWN = {"do": "status", "status": 503}


def ask(text: str) -> list[dict[str, Any]]:
    """Return messages of one text."""
    return [{"role": "user", "content": text}]


def stored(folder: Path, *servers: FaultServer, **store: Any) -> Settings:
    """Return a ladder over *servers* and the cache, recording into *folder*."""
    rungs = [(server.name.lower(), server.url) for server in servers]
    settings = settings_for(*rungs, "cache", retry=TWICE, timeouts=PATIENT, deadline_s=20)
    config = StoreConfig(url=f"sqlite:///{folder}/failsoft.db", **store)
    return Settings(store=config, endpoints=settings.endpoints, ladders=settings.ladders)


def rows_of(settings: Settings) -> tuple[list[CallRecord], int]:
    """Return the call rows, and how many attempts were sent."""
    with Store(settings.store) as store:
        calls = store.reader.calls(limit=10_000)
        sent = sum(a.was_sent for c in calls for a in store.reader.attempts(c.call_id))
    return calls, sent


def test_threads_and_forks_at_once_lose_no_call(server_a: FaultServer, tmp_path: Path) -> None:
    """Four threads call while the process forks; each child calls too and ends by itself."""
    settings = stored(tmp_path, server_a)
    client = Client(settings, environ={})

    def work(name: str) -> None:
        for number in range(20):
            client.chat(ask(f"{name} {number}"))

    threads = [threading.Thread(target=work, args=(str(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    children = []
    for _ in range(3):
        time.sleep(0.03)
        pid = os.fork()
        if pid == 0:
            try:
                work("child")
                client.close()
                os._exit(0)
            finally:
                os._exit(1)
        children.append(pid)
    for thread in threads:
        thread.join(30)
    codes = [os.waitpid(pid, 0)[1] for pid in children]
    client.close()

    calls, sent = rows_of(settings)
    assert codes == [0, 0, 0]
    assert len(calls) == sent == server_a.hits == 4 * 20 + 3 * 20
    assert {call.outcome for call in calls} == {"ok"}


def test_a_call_imports_nothing(server_a: FaultServer, tmp_path: Path) -> None:
    """A fork in the middle of an import would leave the child with a lock that nobody frees."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tests.fallback.test_hardship import Client, ask, stored\n"
        "from tests.fallback.fault_server import FaultServer\n"
        "with FaultServer('A') as server, "
        "Client(stored(Path(sys.argv[1]), server), environ={}) as client:\n"
        "    before = set(sys.modules)\n"
        "    client.chat(ask('a'), temperature=0)\n"
        "    ''.join(client.stream(ask('b'), idempotency_key='k'))\n"
        "    server.plan(default={'do': 'reset'})\n"
        "    client.chat(ask('a'), temperature=0)\n"
        "    print(*sorted(set(sys.modules) - before))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60
    )

    assert done.stdout.strip() == "", done.stderr


def test_leavers_leave_nothing_behind(
    server_a: FaultServer, server_b: FaultServer, tmp_path: Path
) -> None:
    """120 callers leave at random moments, of a faulty rung and shared flights too.

    Every call has its row and every request its attempt, no task runs on, and no endpoint
    counts as waited for.
    """
    faults: list[dict[str, Any]] = [{"do": "reset"}, DOWN, {"do": "stall", "at": "role"}]
    server_a.mix(faults, ratio=0.5, seed=1, default={"do": "ok", "gap_s": 0.01})
    settings = stored(tmp_path, server_a, server_b)
    rng = random.Random(7)

    async def run() -> tuple[int, list[int]]:
        async with AsyncClient(settings, environ={}) as client:

            async def one(number: int) -> None:
                question, sampling = ask(f"{number % 7}"), {"temperature": number % 2}
                if number % 3:
                    await client.chat(question, **sampling)
                else:
                    async for _ in client.stream(question, **sampling):
                        pass

            tasks = []
            for number in range(120):
                tasks.append(asyncio.create_task(one(number)))
                asyncio.get_running_loop().call_later(0.2 * rng.random(), tasks[-1].cancel)
                await asyncio.sleep(0.002)
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0.1)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            models = client.ladders["chat"].models
            return len(left), [model.endpoint.breaker._num_waiting for model in models]

    left, waiting = asyncio.run(run())

    calls, sent = rows_of(settings)
    assert sent == server_a.hits + server_b.hits
    assert (left, waiting) == (0, [0, 0])
    assert len(calls) == 120
    assert {call.outcome for call in calls} <= {"ok", "cancelled"}


@pytest.mark.parametrize(
    "text",
    ["x" * 65_536, "é\u2028😀" * 2000, "nul\0inside", "lone \ud800 surrogate", "\r\n\r\ndata: x"],
    ids=["64-KB", "unicode", "nul", "surrogate", "sse"],
)
def test_odd_text_goes_through_and_is_kept(
    server_a: FaultServer, tmp_path: Path, text: str
) -> None:
    """To the endpoint, into the store under ``all``, and back out of the cache."""
    settings = stored(tmp_path, server_a, keep_text="all")
    with Client(settings, environ={}) as client:
        live = client.chat(ask(text), tenant=text[-20:], idempotency_key=text[:40])
        server_a.plan(default=DOWN)
        kept = client.chat(ask(text), tenant=text[-20:])

    with Store(settings.store) as store:
        texts = [store.reader.text(call.call_id) for call in store.reader.calls(limit=9)]
    assert (kept.rung, kept.text) == ("cache", live.text)
    assert all(words is not None and len(words.request_json) >= len(text) for words in texts)


def test_a_wall_clock_that_jumps_costs_freshness_and_no_answer(
    server_a: FaultServer, tmp_path: Path
) -> None:
    """Back by an hour: age 0, never negative. Past the window: no reply, and no wrong one."""
    jump_s = 0.0
    around = Surroundings(wall=lambda: time.time() + jump_s)
    with Client(stored(tmp_path, server_a), environ={}, surroundings=around) as client:
        client.chat(ask("t"))
        server_a.plan(default=DOWN)
        jump_s = -3600.0
        back = client.chat(ask("t"))
        jump_s = 7200.0
        stale = client.chat(ask("t"))
        jump_s = 1e6
        with pytest.raises(LadderExhaustedError):
            client.chat(ask("t"))

    assert (back.age_s, back.is_stale) == (0.0, False)
    assert stale.age_s == pytest.approx(7200, abs=5)
    assert stale.is_stale


def test_without_kept_text_no_reply_is_kept_anywhere(server_a: FaultServer, tmp_path: Path) -> None:
    """Not in memory either; the ladder does without its cached rung, the ledger goes on."""
    settings = stored(tmp_path, server_a, keep_text="none")
    with Client(settings, environ={}) as client:
        reply = client.chat(ask("t"), temperature=0)
        backends = client._client._core.backends
        server_a.plan(default=DOWN)
        with pytest.raises(LadderExhaustedError):
            client.chat(ask("t"), temperature=0)

    secret = reply.text.strip().encode()
    files = [file.read_bytes() for file in tmp_path.iterdir()]
    assert backends.replies is None
    assert not any(secret in content for content in files)
    assert len(rows_of(settings)[0]) == 2


def test_call_ids_made_later_sort_later(server_a: FaultServer, tmp_path: Path) -> None:
    """Rows of one moment lie together in the store's index."""
    with Client(stored(tmp_path, server_a), environ={}) as client:
        ids = []
        for _ in range(5):
            ids.append(client.chat(ask("t")).call_id)
            time.sleep(0.002)

    assert ids == sorted(ids)
    assert len(set(ids)) == 5
