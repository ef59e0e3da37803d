"""The self-test's yardstick in low precision."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from failsoft.engine.self_test import (
    FLOAT32_LIMIT,
    LOW_PRECISION_LIMIT,
    Probe,
    compare,
    max_difference,
    reference_logits,
    rounding_noise,
)

_CPU = torch.device("cpu")
_PROBES = [Probe(token_ids=[5, 9, 2, 7, 1, 8], cuts=(3, 6))]


def _tiny_model(dtype: torch.dtype) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    model = LlamaForCausalLM(config).eval().to(dtype)
    for weight in model.parameters():
        weight.data *= 4  # the initial 0.02 hardly lets one layer move the next
    return model


def test_noise_is_what_rounding_costs_and_leaves_the_model_as_it_was() -> None:
    """bfloat16 against the same weights in float32 errs about as much as the noise says."""
    model = _tiny_model(torch.bfloat16)
    reference = reference_logits(model, _PROBES, _CPU)

    noise = rounding_noise(model, _PROBES, _CPU, reference)

    again = reference_logits(model, _PROBES, _CPU)
    exact = reference_logits(model.float(), _PROBES, _CPU)
    rounding = max_difference(exact, reference)
    assert rounding / 4 < noise < 4 * rounding
    assert max_difference(reference, again) == 0


def test_a_limit_follows_the_noise_but_never_in_float32() -> None:
    """A noisy model gets room, a quiet one the least limit, and float32 stays strict."""
    logits = [torch.randn(2, 64)]

    assert compare(logits, logits, noise=None).limit == FLOAT32_LIMIT
    assert compare(logits, logits, noise=0.001).limit == LOW_PRECISION_LIMIT
    assert compare(logits, logits, noise=0.4).limit == 0.4


def test_logits_that_are_no_numbers_never_pass() -> None:
    """NaN compares false with everything, so it must not slip through a maximum."""
    result = compare([torch.randn(2, 64)], [torch.full((2, 64), float("nan"))], noise=100.0)

    assert not result.has_passed


def test_logits_that_are_no_numbers_on_both_sides_are_no_agreement() -> None:
    """Broken products break the reference too: the two must not pass for equal."""
    nan = torch.full((2, 64), float("nan"))
    partly = torch.randn(2, 64)
    partly[0, 3] = float("nan")

    assert max_difference([nan], [nan]) == float("inf")
    assert max_difference([partly], [partly]) == float("inf")


def test_noise_without_end_lets_nothing_pass() -> None:
    """Where rounding alone makes infinities nobody knows what a right forward would give."""
    logits = [torch.randn(2, 64)]

    assert not compare(logits, logits, noise=float("inf")).has_passed
