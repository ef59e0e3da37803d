"""The salt that a local engine's prefix cache gets, and that nobody else does."""

import asyncio
import os
import re
from pathlib import Path
from typing import Any

import pytest

from failsoft.config.settings import EndpointConfig, LadderConfig, Settings
from failsoft.fallback.async_client import AsyncClient
from failsoft.fallback.cache_salt import cache_salt
from failsoft.fallback.core import Backends
from failsoft.fallback.discovery import RunningEngine, publish_engine
from failsoft.fallback.memory_store import (
    MemoryIdempotencyStore,
    MemoryRecorder,
    MemoryReplyStore,
)
from tests.engine.fake_engine import FakeEngine
from tests.engine.http.rig import MODEL, answer, running
from tests.fallback.fault_server import FaultServer
from tests.fallback.rig import ASK, ONCE, make_rig, settings_for

LOCAL = Settings(
    pins={"primary": "smollm2-135m-instruct"},
    endpoints={"local": EndpointConfig(name="local", pin="primary")},
    ladders={"chat": LadderConfig(name="chat", rungs=("local", "cache"), retry=ONCE)},
)


def ask_local(
    home: Path, server: FaultServer, calls: list[dict[str, Any]], *, token: str | None = "boot"
) -> tuple[list[str], MemoryReplyStore]:
    """Make *calls* of a ladder over a published engine; return the salts it got."""
    replies = ask_published(home, server.url, calls, version="v", token=token)
    return [request["body"]["cache_salt"] for request in server.stats()["requests"]], replies


def ask_published(
    home: Path, url: str, calls: list[dict[str, Any]], *, version: str, token: str | None
) -> MemoryReplyStore:
    """Publish what listens at *url* as the local engine, and make *calls*."""
    engine = RunningEngine(slot="primary", url=url, pid=os.getpid(), version=version, token=token)
    publish_engine(home, engine)
    replies = MemoryReplyStore()
    backends = Backends(
        recorder=MemoryRecorder(), replies=replies, keys=MemoryIdempotencyStore(wall=lambda: 0.0)
    )

    async def run() -> None:
        environ = {"FAILSOFT_HOME": str(home)}
        async with AsyncClient(LOCAL, backends=backends, environ=environ) as client:
            for call in calls:
                await client.chat(ASK, **call)

    asyncio.run(run())
    return replies


def test_our_engine_takes_the_salt_for_its_blocks(tmp_path: Path) -> None:
    """Over HTTP into the request that the scheduler sees: one root for each tenant."""
    calls: list[dict[str, Any]] = [{"tenant": name} for name in ("t1", "t2")]
    with running(FakeEngine(lambda request: answer("Hi."))) as engine:
        ask_published(tmp_path, f"{engine.url}/v1", calls, version=MODEL, token=None)
        salts = [request.cache_salt for request in engine.engine.submitted]

    assert salts == [cache_salt("", tenant=name, own=None) for name in ("t1", "t2")]


def test_tenants_get_salts_of_their_own(tmp_path: Path, server_a: FaultServer) -> None:
    """The same prompt, two tenants: two salts; one tenant twice: one."""
    calls: list[dict[str, Any]] = [{"tenant": name} for name in ("t1", "t2", "t1", "")]

    salts, _ = ask_local(tmp_path, server_a, calls)

    assert salts[0] == salts[2]
    assert len(set(salts)) == 3
    assert all(re.fullmatch("[0-9a-f]{64}", salt) for salt in salts)


def test_a_caller_cannot_make_another_tenants_salt(tmp_path: Path, server_a: FaultServer) -> None:
    """Whatever the body says is hashed with the caller's own tenant, and never goes as it is."""
    victim = cache_salt("boot", tenant="t1", own=None)
    forgeries: list[object] = [victim, "", ["t1", None], '["t1",null]', "t1", {"tenant": "t1"}]
    calls: list[dict[str, Any]] = [{"tenant": "t2", "cache_salt": own} for own in forgeries]

    salts, _ = ask_local(tmp_path, server_a, calls)

    assert victim not in salts
    assert len(set(salts)) == len(forgeries)


def test_every_ladder_of_the_machine_makes_the_same_salt(
    tmp_path: Path, server_a: FaultServer
) -> None:
    """A front and an app that embeds the client share one tenant's prefixes."""
    first, _ = ask_local(tmp_path, server_a, [{"tenant": "t1"}])
    server_a.plan()
    second, _ = ask_local(tmp_path, server_a, [{"tenant": "t1"}])

    assert first == second == [cache_salt("boot", tenant="t1", own=None)]


def test_another_boot_makes_other_salts() -> None:
    """Who lacks the engine's token cannot make one."""
    assert cache_salt("boot", tenant="t", own=None) != cache_salt("other", tenant="t", own=None)


def test_an_engine_without_a_token_still_keeps_tenants_apart(
    tmp_path: Path, server_a: FaultServer
) -> None:
    """Started by hand, open to this machine."""
    salts, _ = ask_local(tmp_path, server_a, [{"tenant": "t1"}, {"tenant": "t2"}], token=None)

    assert len(set(salts)) == 2


def test_the_reply_cache_does_not_see_the_salt(tmp_path: Path, server_a: FaultServer) -> None:
    """A reply is found again after the engine's next boot, and whatever salt a caller sends."""
    _, replies = ask_local(
        tmp_path, server_a, [{"tenant": "t1"}, {"tenant": "t1", "cache_salt": "mine"}]
    )

    assert replies.size().num_replies == 1


@pytest.mark.parametrize("extra", [{}, {"cache_salt": "mine"}])
def test_an_endpoint_elsewhere_gets_no_salt(server_a: FaultServer, extra: dict[str, str]) -> None:
    """Ours means nothing there, and a caller's own could name another tenant's."""
    rig = make_rig(settings_for(("a", server_a.url)))

    async def run() -> None:
        async with rig.client as client:
            await client.chat(ASK, tenant="t1", **extra)

    asyncio.run(run())

    assert "cache_salt" not in server_a.stats()["requests"][0]["body"]
