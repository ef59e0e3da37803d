"""Requests that cannot even be made: they fail their rung, or are refused at load."""

import pytest

from failsoft.errors import ConfigError
from failsoft.fallback.async_client import AsyncClient
from tests.fallback.fault_server import FaultServer
from tests.fallback.rig import ask, make_rig, memory, settings_for


@pytest.mark.parametrize("key", ["sk-abc\n", "sk-é", " sk-abc", "sk\u200b"])
def test_a_key_that_no_header_can_carry_is_refused_at_load(key: str) -> None:
    """A line break copied with it used to fail every call, and to stand in a traceback."""
    settings = settings_for(("a", "http://127.0.0.1:9/v1"), endpoint={"api_key_env": "THE_KEY"})

    with pytest.raises(ConfigError, match="printable ASCII") as caught:
        AsyncClient(settings, backends=memory(), environ={"THE_KEY": key})

    assert caught.value.key == "endpoints.a.api_key_env"
    assert "sk" not in str(caught.value)


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "nonsense", "http://[::1"])
def test_a_proxy_that_cannot_be_used_fails_the_rung_and_not_the_call(
    server_b: FaultServer, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    """The environment's proxies count for hosts elsewhere; the library raises what it likes."""
    monkeypatch.setenv("ALL_PROXY", proxy)
    rig = make_rig(settings_for(("far", "http://192.0.2.1/v1"), ("b", server_b.url)))

    assert ask(rig).rung == "b"
    assert rig.ledger == ["far connect_failed", "b ok"]
