"""Which calls may share a reply."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.fallback.cache_key import (
    EXCLUDED_FIELDS,
    SAMPLING_FIELDS,
    canonical_json,
    fingerprint,
    reply_key,
)

BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0.0}


def key(body: dict[str, Any], **change: Any) -> str:
    """Return a key with defaults."""
    arguments: dict[str, Any] = {
        "kind": "chat",
        "tenant": "t",
        "version": "v",
        "match": "exact",
        **change,
    }
    return reply_key(body, **arguments)


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.1},
        {"seed": 1},
        {"stop": ["x"]},
        {"max_tokens": 5},
        {"logit_bias": {"1": 2}},
        {"n": 2},
        {"logprobs": True},
        {"top_logprobs": 3},
        {"echo": True},
        {"prompt_logprobs": 0},
        {"allowed_token_ids": [5]},
        {"min_tokens": 3},
        {"skip_special_tokens": False},
        {"include_stop_str_in_output": True},
        {"truncate_prompt_tokens": 9},
        {"continue_final_message": True},
        {"chat_template_kwargs": {"a": 1}},
        {"tools": [{}]},
        {"response_format": {"type": "json_object"}},
        {"lora": "x"},
        {"a_field_of_tomorrow": 1},
        {"messages": [{"role": "system", "content": "hi"}]},
        {"messages": [{"role": "user", "content": "hi "}]},
    ],
)
def test_every_field_that_nobody_excluded_is_in_the_key(change: dict[str, Any]) -> None:
    """A new sampling field can never make two calls share a reply."""
    assert key({**BODY, **change}) != key(BODY)


@pytest.mark.parametrize("name", sorted(EXCLUDED_FIELDS))
def test_how_a_call_travels_is_not_in_the_key(name: str) -> None:
    """Streaming or not, whoever asks within a tenant: the same reply."""
    assert key({**BODY, name: "anything"}) == key(BODY)


@pytest.mark.parametrize("change", [{"tenant": "u"}, {"version": "w"}, {"kind": "completion"}])
def test_tenant_version_and_kind_part_replies(change: dict[str, str]) -> None:
    """A peer's cache leaked across tenants."""
    assert key(BODY, **change) != key(BODY)


def test_parts_cannot_blur() -> None:
    """Tenant "ab" with version "c" is not tenant "a" with version "bc"."""
    assert key(BODY, tenant="ab", version="c") != key(BODY, tenant="a", version="bc")


@pytest.mark.parametrize("name", sorted(SAMPLING_FIELDS))
def test_match_messages_ignores_sampling_and_nothing_else(name: str) -> None:
    """What shapes the reply (n, tools, logprobs) stays in."""
    assert key({**BODY, name: 7}, match="messages") == key(BODY, match="messages")
    assert key({**BODY, "n": 7}, match="messages") != key(BODY, match="messages")
    assert key(BODY, match="messages") != key(BODY, match="exact")


def test_null_is_as_if_absent() -> None:
    """Clients send ``stop: null`` and mean nothing by it."""
    assert key({**BODY, "stop": None}) == key(BODY)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(st.dictionaries(st.text(), json_values, max_size=5), st.randoms())
def test_order_of_fields_does_not_matter(body: dict[str, Any], rng: Any) -> None:
    """Equal JSON, equal text."""
    items = list(body.items())
    rng.shuffle(items)

    assert canonical_json(dict(items)) == canonical_json(body)


def test_equal_numbers_are_written_alike_and_booleans_are_no_numbers() -> None:
    """0, 0.0 and -0.0 are one; true is not 1."""
    assert canonical_json([0, 0.0, -0.0, 1e3]) == "[0,0,0,1000]"
    assert canonical_json([True, 1]) == "[true,1]"


def test_infinity_is_refused() -> None:
    """It is no JSON."""
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(float("inf"))


def test_a_fingerprint_sees_every_field() -> None:
    """The same idempotency key with any other body is a conflict."""
    prints = {
        fingerprint(BODY, kind="chat", ladder="a"),
        fingerprint({**BODY, "user": "x"}, kind="chat", ladder="a"),
        fingerprint(BODY, kind="completion", ladder="a"),
        fingerprint(BODY, kind="chat", ladder="b"),
    }

    assert len(prints) == 4
