"""How long a request an endpoint takes, by its own list of models."""

import asyncio
import gc
import json
from collections.abc import Coroutine, Mapping
from typing import Any

import pytest

from failsoft.config.settings import BreakerConfig, EndpointConfig
from failsoft.fallback.breaker import Breaker
from failsoft.fallback.context_learner import ASK_AGAIN_S, ContextLearner, max_model_len
from failsoft.fallback.endpoint import Endpoint, Target, Version
from failsoft.fallback.transport import HTTPReply
from tests.fallback.fake_time import FakeTime

TARGET = Target(url="http://h/v1", model="m", version=Version(source="s", digest=None, price=None))


class Listing:
    """A transport whose endpoint lists its models so."""

    status = 200
    headers: Mapping[str, str] = {}
    connect_s: float | None = None

    def __init__(self, body: str) -> None:
        self._body = body
        self._rest = b""
        self.num_asked = 0

    async def send(self, url: str, **arguments: Any) -> HTTPReply:
        """Reply."""
        self.num_asked += 1
        self._rest = self._body.encode()
        return self

    async def piece(self, timeout_s: float) -> bytes | None:
        """Return the body, then its end."""
        rest, self._rest = self._rest, b""
        return rest or None

    async def aclose(self) -> None:
        """Close nothing."""


def new_endpoint(time: FakeTime) -> Endpoint:
    """Return an endpoint whose context is not known."""
    return Endpoint(
        EndpointConfig(name="a", url=TARGET.url, model=TARGET.model),
        locate=lambda: TARGET,
        version=lambda: TARGET.version,
        make_breaker=lambda: Breaker(
            BreakerConfig(), slow_s=1, silent_s=1, lease_s=1, clock=time, random=lambda: 0.0
        ),
        clock=time,
    )


def answer(learner: ContextLearner, endpoint: Endpoint, listing: Listing) -> None:
    """Tell *learner* of one answer, and let it learn."""
    works: list[Coroutine[Any, Any, None]] = []
    learner.on_answer(endpoint, TARGET, transport=listing, spawn=works.append)
    for work in works:
        asyncio.run(work)


def test_an_endpoint_is_asked_once() -> None:
    """What it says does not change while it runs under one name and URL."""
    time = FakeTime()
    learner, endpoint = ContextLearner(clock=time), new_endpoint(time)
    listing = Listing(json.dumps({"data": [{"id": "m", "max_model_len": 2048}]}))

    for _ in range(3):
        answer(learner, endpoint, listing)
        time.advance(ASK_AGAIN_S)

    assert (endpoint.context_tokens, listing.num_asked) == (2048, 1)


@pytest.mark.parametrize("body", ["", "[" * 100_000, "{}"], ids=["empty", "deep", "no-list"])
def test_a_list_that_is_none_teaches_nothing(body: str) -> None:
    """And raises nothing: nobody waits for this."""
    time = FakeTime()
    endpoint = new_endpoint(time)

    answer(ContextLearner(clock=time), endpoint, Listing(body))

    assert endpoint.context_tokens is None


def test_each_new_endpoint_of_a_reload_is_asked() -> None:
    """It used to be told by its address in memory, which the next one may get."""
    time = FakeTime()
    learner = ContextLearner(clock=time)
    listing = Listing(json.dumps({"data": [{"id": "m", "max_model_len": 2048}]}))

    for _ in range(5):
        endpoint = new_endpoint(time)
        answer(learner, endpoint, listing)
        assert endpoint.context_tokens == 2048
        del endpoint
        gc.collect()

    assert listing.num_asked == 5
    assert not learner._next_ask_s


@pytest.mark.parametrize("tokens", [True, 0, -1, "2048", 2048.0, None])
def test_what_is_no_count_is_not_known(tokens: object) -> None:
    """``true`` is no context of one token."""
    assert max_model_len({"data": [{"id": "m", "max_model_len": tokens}]}, "m") is None
