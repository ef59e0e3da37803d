"""Who is answered: hosts, origins, keys, content types, request ids."""

import pytest

from failsoft.config.http import HttpConfig, is_loopback
from failsoft.errors import ConfigError
from tests.engine.fake_engine import FakeEngine
from tests.engine.http.rig import MODEL, Rig, answer, running

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]", "[::1]:8000"]
)
def test_loopback_hosts_are_served(rig: Rig, host: str) -> None:
    """With any port: a tunnel may change it."""
    assert rig.get("/v1/models", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "[::1", "[::1]x", "10.0.0.1:8000"]
)
def test_other_hosts_are_refused(rig: Rig, host: str) -> None:
    """DNS rebinding points a page's own name at this machine."""
    reply = rig.get("/health", headers={"host": host})

    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "host_not_allowed"


def test_an_allowed_host_is_served() -> None:
    """As a proxy in front sends it."""
    with running(FakeEngine(lambda r: answer("ok")), allowed_hosts=("LLM.example",)) as rig:
        assert rig.get("/v1/models", headers={"host": "llm.example:443"}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:1", "file://", "http://127.0.0.1"]
)
def test_pages_of_other_origins_are_refused(rig: Rig, origin: str) -> None:
    """Another port is another origin; sandboxed frames and files send null."""
    reply = rig.post(CHAT, json=BODY, headers={"origin": origin})

    assert reply.status_code == 403
    assert reply.json()["error"]["code"] == "origin_not_allowed"


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "http://]", "x", "//"])
def test_an_origin_that_is_no_url_is_refused(rig: Rig, origin: str) -> None:
    """An open bracket once raised outside the error handlers: a bare 500 and a traceback."""
    reply = rig.post(CHAT, json=BODY, headers={"origin": origin})

    assert reply.status_code == 403
    assert reply.json()["error"]["code"] == "origin_not_allowed"


def test_pages_of_this_server_are_served(rig: Rig) -> None:
    """A browser sends their origin with each POST."""
    assert rig.post(CHAT, json=BODY, headers={"origin": rig.url}).status_code == 200


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_only_json_bodies_are_read(rig: Rig, content_type: str) -> None:
    """The others can be sent by any page without asking first."""
    reply = rig.post(CHAT, content=b"{}", headers={"content-type": content_type})

    assert reply.status_code == 415
    assert reply.json()["error"]["param"] == "Content-Type"


def test_a_post_without_a_body_needs_no_content_type(rig: Rig) -> None:
    """There is nothing to read: the route says what it misses, or that it takes no POST."""
    lines = ("Host: 127.0.0.1", "Content-Length: 0", "Connection: close", "", "")
    statuses = []
    for path in (CHAT, "/version"):
        with rig.connect() as sock:
            sock.sendall("\r\n".join((f"POST {path} HTTP/1.1", *lines)).encode())
            statuses.append(sock.recv(4096).split()[1])

    assert statuses == [b"400", b"405"]


def test_a_charset_beside_the_content_type_is_fine(rig: Rig) -> None:
    """Some clients send one."""
    headers = {"content-type": "Application/JSON; charset=utf-8"}

    assert rig.post("/v1/completions", content=b'{"prompt": "a"}', headers=headers).is_success


@pytest.mark.parametrize(
    "sent", [None, "Bearer wrong", "Bearer", "Basic s3cret", "s3cret", "Bearer \xe9"]
)
def test_without_the_key_nothing_but_health_answers(sent: str | None) -> None:
    """Models and metrics tell something too."""
    headers = {} if sent is None else {"authorization": sent.encode("latin-1")}
    with running(FakeEngine(lambda r: answer("ok")), api_key="s3cret") as rig:
        refused = [rig.get(path, headers=headers) for path in ("/v1/models", "/metrics", "/nope")]
        refused += [rig.get(path, headers=headers) for path in ("/docs", "/tokenizer_info")]
        refused.append(rig.post(CHAT, json=BODY, headers=headers))
        probes = [rig.get(path) for path in ("/health", "/health/live", "/health/ready")]

        assert [reply.status_code for reply in refused] == [401] * 6
        assert {reply.json()["error"]["code"] for reply in refused} == {"invalid_api_key"}
        assert [reply.status_code for reply in probes] == [200] * 3
        assert rig.engine.submitted == []


def test_the_key_opens_the_server() -> None:
    """Bearer in any case, as RFC 7235 has it."""
    with running(FakeEngine(lambda r: answer("ok")), api_key="s3cret") as rig:
        assert rig.post(CHAT, json=BODY, headers={"authorization": "bearer s3cret"}).is_success


def test_the_key_is_in_no_repr() -> None:
    """Settings get logged."""
    assert "s3cret" not in repr(HttpConfig(api_key="s3cret"))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "myhost"])
def test_an_open_address_needs_a_key(host: str) -> None:
    """Anyone on the network could use the model otherwise."""
    with pytest.raises(ConfigError, match="--api-key-env"):
        HttpConfig(host=host)

    assert HttpConfig(host=host, api_key="k").host == host


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "::1"])
def test_loopback_addresses_are_known(host: str) -> None:
    """The whole of 127/8 stays on this machine."""
    assert is_loopback(host)


@pytest.mark.parametrize(
    "values",
    [
        {"port": 70_000},
        {"port": -1},
        {"max_body_bytes": 0},
        {"api_key": ""},
        {"stuck_after_s": 0},
        {"body_timeout_s": 0},
    ],
)
def test_settings_out_of_range_are_refused(values: dict[str, int]) -> None:
    """The error names the key."""
    with pytest.raises(ConfigError) as caught:
        HttpConfig(**values)  # type: ignore[arg-type]

    assert caught.value.key in values


@pytest.mark.parametrize("sent", ["trace-1", "a b", "x" * 128])
def test_a_sane_request_id_comes_back(rig: Rig, sent: str) -> None:
    """So that a caller finds its request in both logs."""
    assert rig.get("/health", headers={"x-request-id": sent}).headers["x-request-id"] == sent


@pytest.mark.parametrize("sent", [None, "x" * 129, "caf\xe9", "tab\there"])
def test_any_other_request_id_is_replaced(rig: Rig, sent: str | None) -> None:
    """Nothing that could spoil a log line is echoed."""
    headers = {} if sent is None else {"x-request-id": sent.encode("latin-1")}

    first, second = (rig.get("/health", headers=headers).headers for _ in range(2))

    assert first["x-request-id"] != second["x-request-id"]
    assert len(first["x-request-id"]) == 32
