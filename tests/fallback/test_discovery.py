"""Local engines: found by the file their supervisor writes."""

import asyncio
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from failsoft.config.settings import EndpointConfig, LadderConfig, Settings
from failsoft.config.versions import VersionSettings
from failsoft.errors import CandidateGoneError, LadderExhaustedError
from failsoft.fallback.async_client import AsyncClient
from failsoft.fallback.core import Backends
from failsoft.fallback.discovery import (
    EngineFinder,
    RunningEngine,
    candidate_file,
    engine_file,
    find_candidate,
    promote_candidate,
    publish_engine,
    withdraw_engine,
)
from failsoft.fallback.memory_store import (
    MemoryIdempotencyStore,
    MemoryRecorder,
    MemoryReplyStore,
)
from failsoft.fallback.reply import Reply
from failsoft.run_state import ChildPhase, ChildState, SupervisorState, write_supervisor
from tests.fallback.fault_server import FaultServer
from tests.fallback.rig import ASK

ENGINE = RunningEngine(
    slot="primary",
    url="http://127.0.0.1:1/v1",
    pid=os.getpid(),
    version="v1",
    token="boot-token",
    version_digest="d" * 64,
    max_model_len=2048,
)


def test_what_is_published_is_found(tmp_path: Path) -> None:
    """Owner only; a second publication replaces the first."""
    publish_engine(tmp_path, ENGINE)
    finder = EngineFinder(tmp_path)
    assert finder.find("primary") == ENGINE

    publish_engine(tmp_path, replace(ENGINE, url="http://127.0.0.1:22/v1"))

    found = finder.find("primary")
    assert isinstance(found, RunningEngine)
    assert found.url.endswith(":22/v1")
    assert engine_file(tmp_path, "primary").stat().st_mode & 0o777 == 0o600
    assert "boot-token" not in repr(found)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.unlink(), "no engine is published"),
        (lambda path: path.chmod(0o644), "read by others"),
        (lambda path: path.write_text("{"), "no engine file"),
        (lambda path: path.write_text('{"schema": 2}'), "no engine file"),
        (
            lambda path: path.write_text(
                json.dumps({"schema": 1, "slot": "primary", "url": "x", "pid": 1, "version": "v"})
            ),
            "no engine file",
        ),
    ],
)
def test_a_file_that_is_wrong_is_no_engine(tmp_path: Path, spoil: object, words: str) -> None:
    """In words that say what to do."""
    publish_engine(tmp_path, ENGINE)
    spoil(engine_file(tmp_path, "primary"))  # type: ignore[operator]

    found = EngineFinder(tmp_path).find("primary")

    assert isinstance(found, str)
    assert words in found


def engine_child(name: str, phase: ChildPhase) -> ChildState:
    """Return an engine of the slot primary as its supervisor tells of it."""
    return ChildState(name=name, kind="engine", phase=phase, pid=7, since_ms=0, slot="primary")


@pytest.mark.parametrize(
    ("children", "how"),
    [
        ([engine_child("primary", "starting")], "its engine is starting"),
        ([engine_child("primary", "gave_up")], "its engine was given up"),
        ([engine_child("primary.old", "stopping")], "it is being replaced"),
        (
            [engine_child("primary.old", "stopping"), engine_child("primary.new", "starting")],
            "it is being replaced",
        ),
        ([], "`failsoft up` has none for it"),
    ],
)
def test_callers_are_not_told_to_start_what_failsoft_up_has_in_hand(
    tmp_path: Path, children: list[ChildState], how: str
) -> None:
    """While a pin moved with stop-first the front told its callers to start `failsoft up`."""
    state = SupervisorState(
        pid=os.getpid(),
        started_at_ms=0,
        settings="/srv/failsoft.toml",
        api_url="http://127.0.0.1:8000/v1",
        ops_url="http://127.0.0.1:8001",
        children=tuple(children),
    )
    alone = EngineFinder(tmp_path).find("primary")

    write_supervisor(tmp_path, state)
    found = EngineFinder(tmp_path).find("primary")

    assert "start it with `failsoft up`" in str(alone)
    assert found == f"no engine serves slot primary at this moment: {how}"


def test_a_dead_process_is_no_engine(tmp_path: Path) -> None:
    """A kill -9 leaves the file behind."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    publish_engine(tmp_path, replace(ENGINE, pid=pid))

    found = EngineFinder(tmp_path).find("primary")

    assert isinstance(found, str)
    assert "died" in found


@pytest.mark.skipif(sys.platform != "linux", reason="nobody tells when a process started there")
def test_a_stranger_under_an_engines_old_number_is_no_engine(tmp_path: Path) -> None:
    """Else after a reboot prompts and the token went to whoever has the engine's port now."""
    publish_engine(tmp_path, ENGINE)
    path = engine_file(tmp_path, "primary")
    written = json.loads(path.read_text())
    path.write_text(json.dumps({**written, "process_start": written["process_start"] - 1}))

    found = EngineFinder(tmp_path).find("primary")

    assert isinstance(found, str)
    assert "died" in found


def pinned(url: str) -> Settings:
    """Return a ladder of a local engine, a remote endpoint and the cache."""
    return Settings(
        versions={name: VersionSettings(source=f"file:{name}.gguf") for name in ("v1", "v2")},
        pins={"primary": "v1"},
        endpoints={
            "primary": EndpointConfig(name="primary", pin="primary"),
            "remote": EndpointConfig(name="remote", url=url, model="m"),
        },
        ladders={"chat": LadderConfig(name="chat", rungs=("primary", "remote", "cache"))},
    )


def make_client(settings: Settings, home: Path) -> tuple[AsyncClient, MemoryRecorder]:
    """Return a client that looks for engines in *home*."""
    recorder = MemoryRecorder()
    backends = Backends(
        recorder=recorder, replies=MemoryReplyStore(), keys=MemoryIdempotencyStore()
    )
    client = AsyncClient(settings, backends=backends, environ={"FAILSOFT_HOME": str(home)})
    return client, recorder


def test_a_missing_engine_fails_its_rung_at_once(server_b: FaultServer, tmp_path: Path) -> None:
    """No wait, no retry, and the cause is in the ledger."""
    client, recorder = make_client(pinned(server_b.url), tmp_path)

    async def run() -> Reply:
        async with client:
            return await client.chat(ASK)

    reply = asyncio.run(run())

    first = recorder.records.attempts[0]
    assert reply.rung == "remote"
    assert (first.outcome, first.was_sent) == ("connect_failed", False)
    assert first.error_message is not None
    assert "failsoft up" in first.error_message


@pytest.mark.parametrize("change", [{"token": "é"}, {"url": "http://127.0.0.1:99999/v1"}])
def test_an_engine_file_with_nonsense_in_it_fails_its_rung_and_not_the_call(
    server_b: FaultServer, tmp_path: Path, change: dict[str, Any]
) -> None:
    """The HTTP library's own errors used to come out of the call."""
    publish_engine(tmp_path, replace(ENGINE, pid=os.getpid(), **change))
    client, recorder = make_client(pinned(server_b.url), tmp_path)

    async def run() -> Reply:
        async with client:
            return await client.chat(ASK)

    assert asyncio.run(run()).rung == "remote"
    assert recorder.records.attempts[0].outcome == "connect_failed"


def test_an_engines_token_and_digest_are_used(
    server_a: FaultServer, server_b: FaultServer, tmp_path: Path
) -> None:
    """The reply names the version that wrote it; a reply of one version answers for no other."""
    engine = replace(ENGINE, url=server_a.url)
    publish_engine(tmp_path, engine)
    client, _ = make_client(pinned(server_b.url), tmp_path)

    async def run() -> tuple[Reply, Reply]:
        async with client:
            reply = await client.chat(ASK)
            server_a.plan(default={"do": "status", "status": 500})
            server_b.plan(default={"do": "status", "status": 500})
            publish_engine(tmp_path, replace(engine, version="v2", version_digest="e" * 64))
            with pytest.raises(LadderExhaustedError):
                await client.chat(ASK)
            engine_file(tmp_path, "primary").unlink()
            return reply, await client.chat(ASK)

    reply, kept = asyncio.run(run())

    assert (reply.rung, reply.version) == ("primary", "d" * 64)
    assert (kept.rung, kept.version) == ("cache", "d" * 64)


def test_the_token_travels_and_shows_nowhere(
    server_a: FaultServer, server_b: FaultServer, tmp_path: Path
) -> None:
    """Bearer to the engine; not in records or errors."""
    publish_engine(tmp_path, replace(ENGINE, url=server_a.url))
    server_a.plan(default={"do": "status", "status": 401})
    client, recorder = make_client(pinned(server_b.url), tmp_path)

    async def run() -> None:
        async with client:
            await client.chat(ASK)

    asyncio.run(run())

    request = server_a.stats()["requests"][0]
    assert request["headers"]["authorization"] == "bearer boot-token"
    assert request["body"]["model"] == "v1"
    assert "boot-token" not in str(recorder.records)


def test_a_withdrawn_engine_is_gone_and_its_successor_stays(tmp_path: Path) -> None:
    """An engine that stops late must not take down the file of the one that replaced it."""
    publish_engine(tmp_path, ENGINE)
    withdraw_engine(tmp_path, replace(ENGINE, pid=ENGINE.pid + 1))
    assert EngineFinder(tmp_path).find("primary") == ENGINE

    withdraw_engine(tmp_path, ENGINE)

    assert not engine_file(tmp_path, "primary").exists()
    withdraw_engine(tmp_path, ENGINE)  # twice is fine


def test_a_candidate_is_found_by_no_ladder_until_it_is_promoted(tmp_path: Path) -> None:
    """Then it has the slot, with the same content, and is no candidate any more."""
    finder = EngineFinder(tmp_path)
    publish_engine(tmp_path, ENGINE)
    new = replace(ENGINE, url="http://127.0.0.1:22/v1", pid=os.getppid(), version_digest="e" * 64)

    publish_engine(tmp_path, new, is_candidate=True)
    mode = candidate_file(tmp_path, "primary").stat().st_mode
    found = find_candidate(tmp_path, "primary"), finder.find("primary")
    promoted = promote_candidate(tmp_path, "primary", new.pid)

    assert mode & 0o777 == 0o600
    assert found == (new, ENGINE)
    assert promoted == finder.find("primary") == new
    assert find_candidate(tmp_path, "primary") == "no candidate is published for slot primary"


def test_only_the_process_that_was_proven_is_promoted(tmp_path: Path) -> None:
    """What took its place, or nothing at all, would be a version that nobody looked at."""
    publish_engine(tmp_path, ENGINE)
    with pytest.raises(CandidateGoneError, match="no candidate is published"):
        promote_candidate(tmp_path, "primary", 1)
    publish_engine(tmp_path, replace(ENGINE, pid=os.getppid()), is_candidate=True)

    with pytest.raises(CandidateGoneError, match=f"process {os.getppid()} by now") as caught:
        promote_candidate(tmp_path, "primary", 1)

    assert (caught.value.slot, caught.value.pid) == ("primary", 1)
    assert EngineFinder(tmp_path).find("primary") == ENGINE


def test_a_candidate_that_died_is_not_promoted(tmp_path: Path) -> None:
    """Killed, it could not withdraw its file."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    publish_engine(tmp_path, replace(ENGINE, pid=pid), is_candidate=True)

    with pytest.raises(CandidateGoneError, match="died"):
        promote_candidate(tmp_path, "primary", pid)

    assert isinstance(find_candidate(tmp_path, "primary"), str)


@pytest.mark.parametrize("is_promoted", [False, True])
def test_an_engine_withdraws_whichever_file_is_its_own(tmp_path: Path, is_promoted: bool) -> None:
    """It does not know whether it was promoted; the other engine's file stays."""
    old = replace(ENGINE, pid=os.getppid())
    publish_engine(tmp_path, old)
    publish_engine(tmp_path, ENGINE, is_candidate=True)
    if is_promoted:
        promote_candidate(tmp_path, "primary", ENGINE.pid)

    withdraw_engine(tmp_path, ENGINE)

    left = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert left == ([] if is_promoted else [engine_file(tmp_path, "primary")])


def test_an_engine_that_withdraws_while_another_is_promoted_takes_nothing_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a look at its file and the removal, the file may have become the successor's."""
    old = replace(ENGINE, pid=os.getppid())
    publish_engine(tmp_path, old)
    publish_engine(tmp_path, ENGINE, is_candidate=True)
    rename = Path.rename

    def late(path: Path, target: Path) -> Path:
        promote_candidate(tmp_path, "primary", ENGINE.pid)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", late)
    withdraw_engine(tmp_path, old)

    assert EngineFinder(tmp_path).find("primary") == ENGINE
    assert [path.name for path in (tmp_path / "run").iterdir() if path.is_file()] == [
        "primary.json"
    ]


def test_a_reply_of_an_engine_that_is_down_is_found_by_a_new_client(
    server_a: FaultServer, server_b: FaultServer, tmp_path: Path
) -> None:
    """Neither the engine nor its file can say the digest: the kept replies can."""
    publish_engine(tmp_path, replace(ENGINE, url=server_a.url))
    settings = pinned(server_b.url)
    first, _ = make_client(settings, tmp_path)
    kept_by = first._core.backends

    async def run(client: AsyncClient) -> Reply:
        async with client:
            return await client.chat(ASK)

    asyncio.run(run(first))
    engine_file(tmp_path, "primary").unlink()
    server_b.plan(default={"do": "status", "status": 500})
    second = AsyncClient(settings, backends=kept_by, environ={"FAILSOFT_HOME": str(tmp_path)})
    reply = asyncio.run(run(second))
    moved = replace(settings, pins={"primary": "v2"})
    third = AsyncClient(moved, backends=kept_by, environ={"FAILSOFT_HOME": str(tmp_path)})

    assert (reply.rung, reply.version) == ("cache", "d" * 64)
    with pytest.raises(LadderExhaustedError):
        asyncio.run(run(third))
    back = AsyncClient(settings, backends=kept_by, environ={"FAILSOFT_HOME": str(tmp_path)})
    assert asyncio.run(run(back)).version == "d" * 64


def test_the_header_of_a_reply_says_who_wrote_it(server_a: FaultServer, tmp_path: Path) -> None:
    """Behind one URL the version may change at any moment; old replies then answer no more."""
    config = EndpointConfig(name="a", url=server_a.url, model="m")
    settings = Settings(
        endpoints={"a": config},
        ladders={"chat": LadderConfig(name="chat", rungs=("a", "cache"))},
    )
    client, recorder = make_client(settings, tmp_path)
    down = {"do": "status", "status": 500}

    async def run() -> list[Reply]:
        async with client:
            server_a.plan({"do": "ok_whole", "version": "d" * 64}, default=down)
            replies = [await client.chat(ASK), await client.chat(ASK)]
            server_a.plan({"do": "ok", "version": "e" * 64}, default=down)
            other = [{"role": "user", "content": "something else"}]
            replies.append(await client.chat(other))
            with pytest.raises(LadderExhaustedError):
                await client.chat(ASK)
            server_a.plan({"do": "ok", "version": "not a digest"}, default=down)
            replies.append(await client.chat(ASK, cache="off"))
            return replies

    replies = asyncio.run(run())

    assert [reply.version for reply in replies] == ["d" * 64, "d" * 64, "e" * 64, None]
    assert [reply.rung for reply in replies] == ["a", "cache", "a", "a"]
    rows = [a.version_digest for a in recorder.records.attempts if a.outcome == "ok"]
    assert rows == ["d" * 64, "d" * 64, "e" * 64, None]
