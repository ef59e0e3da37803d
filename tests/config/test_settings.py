"""Settings built in code refuse what a file may not say either."""

import math
from collections.abc import Callable

import pytest

from failsoft.config.secrets import read_secret
from failsoft.config.settings import (
    BreakerConfig,
    CacheConfig,
    EndpointConfig,
    LadderConfig,
    RetryConfig,
    Settings,
    StoreConfig,
    TimeoutConfig,
)
from failsoft.errors import ConfigError


@pytest.mark.parametrize(
    ("build", "key"),
    [
        (lambda: RetryConfig(attempts=0), "attempts"),
        (lambda: RetryConfig(base_s=2, cap_s=1), "cap_s"),
        (lambda: RetryConfig(budget_ratio=1.1), "budget_ratio"),
        (lambda: TimeoutConfig(gap_s=0), "gap_s"),
        (lambda: TimeoutConfig(connect_s=math.nan), "connect_s"),
        (lambda: BreakerConfig(failure_ratio=0), "failure_ratio"),
        (lambda: CacheConfig(ttl_s=-1), "ttl_s"),
        (lambda: LadderConfig(name="chat", rungs=()), "rungs"),
        (lambda: LadderConfig(name="chat", rungs=("cache", "cache")), "rungs"),
        (lambda: LadderConfig(name="a b", rungs=("cache",)), "name"),
        (lambda: StoreConfig(url="sqlite:///:memory:"), "url"),
        (lambda: StoreConfig(url="mysql://h/d"), "url"),
        (lambda: StoreConfig(idempotency_hours=23), "idempotency_hours"),
        (lambda: EndpointConfig(name="a"), "pin"),
        (lambda: EndpointConfig(name="a", pin="p", url="http://h/v1", model="m"), "pin"),
        (lambda: EndpointConfig(name="a", url="http://h/v1"), "model"),
        (lambda: EndpointConfig(name="a", url="http://h:99999/v1", model="m"), "url"),
        (lambda: EndpointConfig(name="a", url="http://h:x/v1", model="m"), "url"),
        (lambda: EndpointConfig(name="a", url="http://[::1/v1", model="m"), "url"),
        (lambda: EndpointConfig(name="a", url="http:///v1", model="m"), "url"),
        (lambda: EndpointConfig(name="a", pin="p", model="m"), "model"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(build: Callable[[], object], key: str) -> None:
    """The error carries the field, so that the caller need not guess."""
    with pytest.raises(ConfigError) as caught:
        build()

    assert caught.value.key == key


@pytest.mark.parametrize("model", ["latest", "llama3:latest", "gpt-4o-latest", "org/m@main"])
def test_a_model_name_that_moves_is_refused(model: str) -> None:
    """What a moving name answers with cannot be pinned or rolled back."""
    with pytest.raises(ConfigError, match="does not move"):
        EndpointConfig(name="a", url="http://h/v1", model=model)


def test_a_model_name_that_only_contains_a_moving_word_is_taken() -> None:
    """``main-model`` and ``latestish-7b`` name releases."""
    for model in ("main-model", "latestish-7b", "gpt-4o-2024-08-06"):
        assert EndpointConfig(name="a", url="http://h/v1", model=model).model == model


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:hunter2@db/records",
        "postgresql://user:hun/ter2@db/records",
        "postgresql://user@db/records?password=hunter2",
    ],
)
def test_a_password_in_the_store_url_is_refused_and_not_shown(url: str) -> None:
    """Secrets come from the environment only, and never reach a log through an error."""
    with pytest.raises(ConfigError) as caught:
        StoreConfig(url=url)

    assert "ter2" not in str(caught.value)
    assert "password_env" in str(caught.value)


def test_a_secret_pasted_where_its_variable_belongs_is_not_shown() -> None:
    """A bad ``api_key_env`` is often the key itself."""
    with pytest.raises(ConfigError) as caught:
        EndpointConfig(name="a", url="http://h/v1", model="m", api_key_env="sk-123!")

    assert "sk-123" not in str(caught.value)


def test_a_slow_first_token_defaults_to_a_share_of_its_clock() -> None:
    """0.8 of ``first_token_s``, unless the ladder says when."""
    by_share = LadderConfig(name="a", rungs=("x",), timeouts=TimeoutConfig(first_token_s=5))
    by_hand = LadderConfig(name="a", rungs=("x",), breaker=BreakerConfig(slow_first_token_s=1))

    assert by_share.slow_first_token_s == pytest.approx(4.0)
    assert by_hand.slow_first_token_s == 1


def test_keeping_no_text_turns_the_cached_rung_off() -> None:
    """No reply on disk, no reply to serve."""
    ladder = LadderConfig(name="a", rungs=("cache",))

    assert Settings().serves_cache(ladder)
    assert not Settings(store=StoreConfig(keep_text="none")).serves_cache(ladder)


def test_an_unset_secret_is_refused_by_its_name() -> None:
    """An empty variable is as good as none."""
    assert read_secret("KEY", key="k", environ={"KEY": "v"}) == "v"

    with pytest.raises(ConfigError, match="KEY"):
        read_secret("KEY", key="endpoints.a.api_key_env", environ={"KEY": ""})
