"""Who calls: keys and tenants, and that no tenant sees another's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from failsoft.config.settings import Settings
from failsoft.errors import ConfigError
from failsoft.serving.front.keyring import Keyring, read_keyring
from tests.fallback.fault_server import FaultServer
from tests.serving.front.rig import FrontProcess, front, toml

KEYS = '[keys]\nalice = "ALICE_KEY"\nbob = "BOB_KEY"\n'
ENVIRON = {"ALICE_KEY": "sk-alice", "BOB_KEY": "sk-bob"}


def bearer(key: str) -> dict[str, str]:
    """The header of a caller."""
    return {"authorization": f"Bearer {key}"}


def ask(text: str) -> list[dict[str, Any]]:
    """Messages that nobody else asks."""
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FrontProcess, FaultServer]]:
    """A front with two callers, over one server and the cache."""
    with (
        FaultServer("A") as server,
        front(
            tmp_path_factory.mktemp("keyed"), toml(server, more=KEYS), environ=ENVIRON
        ) as process,
    ):
        yield process, server


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer"}, bearer("sk-eve"), {"authorization": "Basic sk-alice"}],
)
@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/internal/status"])
def test_without_a_key_nothing_opens(
    keyed: tuple[FrontProcess, FaultServer], headers: dict[str, str], path: str
) -> None:
    """401 in OpenAI's shape; a probe needs none."""
    process, _ = keyed

    assert process.get(path, **headers).status_code == 401
    refused = process.post(headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    assert process.get("/health/live").status_code == 200


def test_a_key_opens_the_api_and_not_the_status(keyed: tuple[FrontProcess, FaultServer]) -> None:
    """The status is for our own processes, by the token that the front published."""
    process, _ = keyed

    assert process.get("/v1/models", **bearer("sk-bob")).status_code == 200
    assert process.get("/metrics", **bearer("sk-bob")).status_code == 200
    assert process.get("/internal/status", **bearer("sk-bob")).status_code == 401
    assert process.status()["schema"] == 1
    assert process.get("/metrics", **bearer(process.state.token)).status_code == 200
    assert process.post(headers=bearer(process.state.token)).status_code == 401


@pytest.mark.parametrize("claim", [{}, {"x-failsoft-tenant": "alice"}])
def test_the_keys_name_is_the_tenant_whatever_the_header_says(
    keyed: tuple[FrontProcess, FaultServer], claim: dict[str, str]
) -> None:
    """Bob gets nothing of what Alice was told, though he asks the very same."""
    process, server = keyed
    server.plan()
    text = f"a secret {claim}"
    process.post(messages=ask(text), headers=bearer("sk-alice"))
    server.plan(default={"do": "status", "status": 500})

    bob = process.post(messages=ask(text), headers={**bearer("sk-bob"), **claim})
    alice = process.post(messages=ask(text), headers=bearer("sk-alice"))

    assert bob.status_code == 503
    assert alice.status_code == 200
    assert alice.headers["x-failsoft-rung"] == "cache"


def test_without_keys_the_header_is_the_tenant(
    shared: FrontProcess, server_a: FaultServer, server_b: FaultServer
) -> None:
    """For a service that knows its users and keeps the front to itself."""
    for tenant in ("t1", "t2"):
        server_a.plan()
        server_b.plan()
        if tenant == "t1":
            shared.post(messages=ask("mine"), headers={"x-failsoft-tenant": "t1"})
    for server in (server_a, server_b):
        server.plan(default={"do": "status", "status": 500})

    statuses = [
        shared.post(messages=ask("mine"), headers={"x-failsoft-tenant": tenant}).status_code
        for tenant in ("t1", "t2", "T1")
    ]

    assert statuses == [200, 503, 503]


def test_an_idempotency_key_is_its_tenants(keyed: tuple[FrontProcess, FaultServer]) -> None:
    """Two callers may choose the same one."""
    process, server = keyed
    server.plan()

    replies = [
        process.post(
            messages=ask(f"{name} asks"), headers={**bearer(f"sk-{name}"), "idempotency-key": "k"}
        )
        for name in ("alice", "bob")
    ]

    assert [reply.status_code for reply in replies] == [200, 200]
    assert server.hits == 2


def test_a_keyring_names_whose_key_it_is() -> None:
    """Nothing else opens it; without keys everybody is nameless."""
    ring = Keyring({"alice": "a", "bob": "b"})

    assert [ring.name_of(key) for key in ("a", "b", "c", "", "ab")] == [
        "alice",
        "bob",
        None,
        None,
        None,
    ]
    assert not ring.is_empty
    assert Keyring({}).name_of("anything") == ""


@pytest.mark.parametrize(
    ("environ", "key"),
    [({"ALICE_KEY": "x"}, "keys.bob"), ({"ALICE_KEY": "x", "BOB_KEY": "x"}, "keys.bob")],
)
def test_a_missing_or_shared_key_is_a_config_error(environ: dict[str, str], key: str) -> None:
    """Two callers with one key could not be told apart; the key itself is not shown."""
    settings = Settings(keys={"alice": "ALICE_KEY", "bob": "BOB_KEY"})

    with pytest.raises(ConfigError) as caught:
        read_keyring(settings, environ, host="127.0.0.1")

    assert caught.value.key == key
    assert "'x'" not in str(caught.value)


def test_without_keys_only_this_machine_is_answered() -> None:
    """An open front on the network would spend its owner's money."""
    with pytest.raises(ConfigError, match=r"\[keys\]"):
        read_keyring(Settings(), {}, host="0.0.0.0")


def test_a_front_refuses_to_start_without_its_keys(tmp_path: Path) -> None:
    """One line that names the variable; exit code 2."""
    settings = toml("http://127.0.0.1:9/v1", more=KEYS)

    with (
        pytest.raises(AssertionError, match="BOB_KEY"),
        front(tmp_path, settings, environ={"ALICE_KEY": "x"}),
    ):
        pass
