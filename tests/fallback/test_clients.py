"""The client in threads, loops, notebooks and forked workers."""

import asyncio
import gc
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from failsoft.config.settings import StoreConfig
from failsoft.errors import InvalidCallError
from failsoft.fallback.async_client import AsyncClient
from failsoft.fallback.call import MAX_NESTING
from failsoft.fallback.client import Client
from failsoft.store import Store
from tests.fallback.fault_server import FaultServer
from tests.fallback.rig import ASK, PATIENT, make_client, memory, settings_for

TEXT = "A0 A1 A2 "


def test_a_plain_call_from_a_settings_file(server_a: FaultServer, tmp_path: Path) -> None:
    """The example of the README: everything is said in one file, rows land in its store."""
    path = tmp_path / "failsoft.toml"
    path.write_text(
        f"""
        [endpoints.remote]
        url = "{server_a.url}"
        model = "some-model"
        [ladders.chat]
        rungs = ["remote", "cache"]
        """
    )

    with Client(str(path), environ={}) as client:
        reply = client.chat(ASK, ladder="chat", deadline_s=5)

    assert (reply.text, reply.rung) == (TEXT, "remote")
    with Store(StoreConfig(url=f"sqlite:///{tmp_path / 'failsoft.db'}"), environ={}) as store:
        (call,) = store.reader.calls()
        (attempt,) = store.reader.attempts(reply.call_id)
    assert (call.call_id, call.outcome) == (reply.call_id, "ok")
    assert (attempt.endpoint, attempt.was_sent) == ("remote", True)


def test_many_threads_share_one_client(server_a: FaultServer) -> None:
    """Each gets its own reply."""
    settings = settings_for(("a", server_a.url), timeouts=PATIENT, deadline_s=20)
    with make_client(settings) as client, ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda _: client.chat(ASK), range(64)))

    assert {reply.text for reply in replies} == {TEXT}
    assert len({reply.call_id for reply in replies}) == 64
    assert server_a.hits == 64


def test_the_sync_client_works_where_a_loop_already_runs(server_a: FaultServer) -> None:
    """A notebook cell runs inside a loop."""

    async def cell() -> str:
        with make_client(settings_for(("a", server_a.url))) as client:
            return client.chat(ASK).text

    assert asyncio.run(cell()) == TEXT


def test_one_async_client_serves_many_loops_and_leaves_nothing_of_them(
    server_a: FaultServer,
) -> None:
    """asyncio.run once a request: connections belong to a loop and used to outlive it."""
    client = AsyncClient(settings_for(("a", server_a.url)), backends=memory(), environ={})

    async def once() -> str:
        return (await client.chat(ASK)).text

    texts = [asyncio.run(once())]
    gc.collect()
    num_open = len(os.listdir("/proc/self/fd"))
    texts += [asyncio.run(once()) for _ in range(5)]
    gc.collect()

    assert set(texts) == {TEXT}
    assert len(os.listdir("/proc/self/fd")) <= num_open
    assert not client._core._loops


def test_a_forked_worker_gets_its_own_loop_and_connections(server_a: FaultServer) -> None:
    """A preloading web server forks after the client was used; parent and child go on."""
    with make_client(settings_for(("a", server_a.url))) as client:
        assert client.chat(ASK).text == TEXT
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = 0 if "".join(client.stream(ASK)) == client.chat(ASK).text == TEXT else 2
            finally:
                os._exit(code)
        assert client.chat(ASK).text == TEXT
        _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert server_a.hits == 4


def test_the_client_needs_no_torch() -> None:
    """Importing it and making one loads neither torch nor transformers."""
    code = (
        "import sys, failsoft; failsoft.Client, failsoft.AsyncClient; "
        "print([m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip() == "[]"


def nested(levels: int) -> dict[str, Any]:
    """Return objects in each other."""
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def test_a_deep_request_is_asked_kept_and_found_again(server_a: FaultServer) -> None:
    """As deep as is allowed; a little deeper used to lose a reply that was in hand."""
    with make_client(settings_for(("a", server_a.url), "cache")) as client:
        live = client.chat(ASK, temperature=0, response_format=nested(MAX_NESTING - 1))
        server_a.plan(default={"do": "status", "status": 503})
        kept = client.chat(ASK, temperature=0, response_format=nested(MAX_NESTING - 1))

    assert (live.rung, kept.rung) == ("a", "cache")


@pytest.mark.parametrize(
    ("arguments", "param"),
    [
        ({"deadline_s": 0}, "deadline_s"),
        ({"deadline_s": float("nan")}, "deadline_s"),
        ({"deadline_s": "5"}, "deadline_s"),
        ({"cache": "maybe"}, "cache"),
        ({"ladder": "other"}, "ladder"),
        ({"n": 0}, "n"),
        ({"n": True}, "n"),
        ({"n": "SECRET"}, "n"),
        ({"temperature": float("nan")}, "body"),
        ({"stop": {"a", "set"}}, "body"),
        ({"response_format": nested(MAX_NESTING)}, "body"),
        ({"response_format": nested(100_000)}, "body"),
        ({"cache_salt": nested(MAX_NESTING)}, "body"),
        ({"cache_salt": nested(100_000)}, "body"),
        ({"cache_salt": float("nan")}, "body"),
        ({"cache_salt": {"a", "set"}}, "body"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(
    server_a: FaultServer, arguments: dict[str, object], param: str
) -> None:
    """Before anything is asked."""
    client = make_client(settings_for(("a", server_a.url)))
    with client, pytest.raises(InvalidCallError) as caught:
        client.chat(ASK, **arguments)

    assert caught.value.param == param
    assert "SECRET" not in str(caught.value)
    assert server_a.hits == 0


@pytest.mark.parametrize("messages", [[], "hello", ["hello"]])
def test_what_are_no_messages_is_refused(server_a: FaultServer, messages: Any) -> None:
    """A list of objects, at least one."""
    client = make_client(settings_for(("a", server_a.url)))
    with client, pytest.raises(InvalidCallError):
        client.chat(messages)


def test_sampling_fields_travel_and_the_ladders_own_do_not(server_a: FaultServer) -> None:
    """``model`` and ``stream`` are set for each endpoint."""
    with make_client(settings_for(("a", server_a.url))) as client:
        client.ask({"messages": ASK, "model": "mine", "stream": False, "top_k": 5})

    body = server_a.stats()["requests"][0]["body"]
    assert (body["model"], body["stream"], body["top_k"]) == ("m", True, 5)
    assert body["stream_options"] == {"include_usage": True}
