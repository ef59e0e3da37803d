"""What a caller may ask for: ranges, and the field an error names."""

import math

import pytest

from failsoft.engine.request import GenerationRequest, SamplingParams
from failsoft.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", math.nan),
        ("temperature", True),
        ("temperature", "1"),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", -1),
        ("top_k", 1.5),
        ("min_p", math.inf),
        ("seed", -1),
        ("seed", 2**64),
        ("max_tokens", -1),
        ("max_tokens", True),
        ("min_tokens", -1),
        ("min_tokens", 2),
        ("presence_penalty", 2.1),
        ("presence_penalty", math.nan),
        ("frequency_penalty", -2.1),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", 11),
        ("logprobs", 21),
        ("logprobs", True),
        ("prompt_logprobs", -1),
        ("allowed_token_ids", frozenset()),
        ("allowed_token_ids", frozenset(range(2000))),
        ("logit_bias", dict.fromkeys(range(2000), 1.0)),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field: str, value: object) -> None:
    """NaN and bool are not numbers here."""
    with pytest.raises(InvalidRequestError, match=field) as caught:
        SamplingParams(**{"max_tokens": 1, field: value})  # type: ignore[arg-type]

    assert caught.value.param == field


@pytest.mark.parametrize("bias", [100.5, -101, math.nan, True, "1"], ids=str)
def test_a_bias_out_of_range_is_refused_with_its_token(bias: object) -> None:
    """The error says which of many entries is wrong."""
    with pytest.raises(InvalidRequestError, match="logit_bias of token 17") as caught:
        SamplingParams(max_tokens=1, logit_bias={4: 1.0, 17: bias})  # type: ignore[dict-item]

    assert caught.value.param == "logit_bias"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("logit_bias", {5: 1.0, 97: 1.0}),
        ("allowed_token_ids", frozenset({97})),
        ("stop_token_ids", frozenset({-1})),
    ],
)
def test_a_token_that_the_model_lacks_is_refused(field: str, value: object) -> None:
    """On a GPU such an index would end the process."""
    params = SamplingParams(max_tokens=1, **{field: value})  # type: ignore[arg-type]

    with pytest.raises(InvalidRequestError, match=r"0\.\.96") as caught:
        params.check_vocab(97)

    assert caught.value.param == field


@pytest.mark.parametrize(
    ("settings", "greedy"),
    [
        ({"temperature": 0.0}, True),
        ({"temperature": 1e-9}, True),
        ({"temperature": 1.0, "top_k": 1}, True),
        ({"temperature": 0.7}, False),
    ],
)
def test_what_counts_as_greedy(settings: dict[str, float], greedy: bool) -> None:
    """A temperature too small to divide by is zero (vllm#1623's kind)."""
    assert SamplingParams(max_tokens=1, **settings).is_greedy is greedy  # type: ignore[arg-type]


def test_an_empty_prompt_is_refused() -> None:
    """There is nothing to continue."""
    with pytest.raises(InvalidRequestError) as caught:
        GenerationRequest(
            request_id="a",
            prompt_ids=(),
            sampling=SamplingParams(max_tokens=1),
            arrival_s=0.0,
        )

    assert caught.value.param == "prompt"
