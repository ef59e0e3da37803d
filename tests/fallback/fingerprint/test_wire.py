"""What an endpoint's answers say, and that nonsense in them is refused and not computed with."""

import json
from typing import Any

import pytest

from failsoft.errors import FingerprintError
from failsoft.fallback.fingerprint import wire
from failsoft.fallback.fingerprint.records import Method


def _reply(logprob: str) -> Any:
    """Return a greedy answer of one token; *logprob* is as it stands on the wire."""
    text = (
        f'{{"choices": [{{"logprobs": {{"content": [{{"token": "a", "logprob": {logprob}}}]}}}}]}}'
    )
    return json.loads(text)


@pytest.mark.parametrize(
    "logprob", ["NaN", "Infinity", "1e999", "1" + 400 * "0", "2.5", "true", '"-1"', "null"]
)
def test_what_is_no_log_probability_is_refused(logprob: str) -> None:
    """An integer too large for a float, or infinity, once ended the round for all endpoints."""
    with pytest.raises(FingerprintError, match="no log probabilities"):
        wire.read(Method.GREEDY, _reply(logprob))


@pytest.mark.parametrize("logprob", ["-Infinity", "-9999.0", "-1" + 400 * "0"])
def test_an_impossible_token_counts_as_the_lowest(logprob: str) -> None:
    """Engines write minus infinity in several ways."""
    assert wire.read(Method.GREEDY, _reply(logprob)).logprobs == (wire.MIN_LOGPROB,)


def test_a_certain_token_may_be_rounded_above_zero() -> None:
    """As engines of low precision do."""
    assert wire.read(Method.GREEDY, _reply("1e-6")).logprobs == (1e-6,)


def test_tokens_as_long_as_a_book_are_none() -> None:
    """Twelve of 80 kB each came as one answer, and 5 MB of them went into the store."""
    content = [{"token": "x" * 80_000, "logprob": -1.0}] * 12
    reply = {"choices": [{"logprobs": {"content": content}}]}

    with pytest.raises(FingerprintError, match="no log probabilities"):
        wire.read(Method.GREEDY, reply)
