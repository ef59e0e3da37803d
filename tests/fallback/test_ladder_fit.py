"""Which rungs a request fits: context, capability, and what a caller rules out."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from failsoft.config.settings import CacheConfig
from failsoft.errors import CallRefusedError, LadderExhaustedError
from tests.fallback.fault_server import FaultServer
from tests.fallback.rig import ASK, ONCE, TWICE, ask, make_rig, settings_for


def test_fallback_off_asks_the_first_model_alone(
    server_a: FaultServer, server_b: FaultServer
) -> None:
    """For a caller who would rather have an error than another model."""
    server_a.plan(default={"do": "status", "status": 500})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), "cache", retry=TWICE))

    with pytest.raises(LadderExhaustedError):
        ask(rig, fallback=False)

    assert (server_a.hits, server_b.hits) == (2, 0)


@pytest.mark.parametrize(
    ("endpoint", "extra", "outcome"),
    [
        ({"context_tokens": 20}, {"max_tokens": 100}, "skipped_context"),
        ({"tools": False}, {"tools": [{"type": "function"}]}, "skipped_capability"),
        (
            {"json_schema": False},
            {"response_format": {"type": "json_schema", "json_schema": {}}},
            "skipped_capability",
        ),
    ],
)
def test_a_rung_that_cannot_take_the_request_is_not_asked(
    server_a: FaultServer,
    server_b: FaultServer,
    endpoint: dict[str, Any],
    extra: dict[str, Any],
    outcome: str,
) -> None:
    """The smaller model may have a shorter window, or no JSON schema."""
    settings = settings_for(("a", server_a.url), ("b", server_b.url))
    small = replace(settings.endpoints["a"], **endpoint)
    rig = make_rig(replace(settings, endpoints={**settings.endpoints, "a": small}))

    assert ask(rig, **extra).rung == "b"

    assert server_a.hits == 0
    assert rig.ledger == [f"a {outcome}", "b ok"]


def test_too_long_for_a_smaller_rung_is_not_the_callers_fault(
    server_a: FaultServer, server_b: FaultServer
) -> None:
    """The first model would have taken it; its outage must not become a 400."""
    server_a.plan(default={"do": "status", "status": 500})
    server_b.plan(default={"do": "status", "status": 400, "code": "context_length_exceeded"})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url)))

    with pytest.raises(LadderExhaustedError):
        ask(rig)


def test_an_endpoints_context_is_learnt_beside_the_calls(server_a: FaultServer) -> None:
    """From its own list of models, after its first answer."""
    rig = make_rig(settings_for(("a", server_a.url)))

    async def run() -> None:
        async with rig.client as client:
            await client.chat(ASK)
            endpoint = client.ladders["chat"].models[0].endpoint
            for _ in range(100):
                if endpoint.context_tokens is not None:
                    break
                await asyncio.sleep(0.01)
            assert endpoint.context_tokens == 2048
            await client.chat(ASK, max_tokens=5000, fallback=False)

    asyncio.run(run())

    assert rig.ledger == ["a ok", "a skipped_context", "a ok"]


def test_a_cache_that_cannot_help_says_why(server_a: FaultServer) -> None:
    """Opted out: the rung is in the ledger, with its reason."""
    server_a.plan(default={"do": "status", "status": 500})
    rig = make_rig(settings_for(("a", server_a.url), "cache", cache=CacheConfig(), retry=ONCE))

    with pytest.raises(LadderExhaustedError):
        ask(rig, cache="off")

    assert rig.ledger == ["a http_status", "cache cache_not_allowed"]


def test_a_call_too_long_for_every_rung_is_refused_by_the_roomiest_one(
    server_a: FaultServer, server_b: FaultServer
) -> None:
    """It is the caller's fault and no outage; and where the estimate was high, it is answered."""
    settings = settings_for(("a", server_a.url), ("b", server_b.url))
    endpoints = {
        name: replace(endpoint, context_tokens=tokens)
        for (name, endpoint), tokens in zip(settings.endpoints.items(), (200, 400), strict=True)
    }
    rig = make_rig(replace(settings, endpoints=endpoints))
    long = [{"role": "user", "content": " " * 6000}]

    async def run() -> str:
        async with rig.client as client:
            answered = (await client.chat(long)).rung
            server_b.plan({"do": "status", "status": 400, "code": "context_length_exceeded"})
            with pytest.raises(CallRefusedError):
                await client.chat(long)
            return answered

    assert asyncio.run(run()) == "b"
    assert server_a.hits == 0
