"""Costs at a version's price."""

import pytest

from failsoft.config.price import TokenPrice, cost
from failsoft.errors import ConfigError

PRICE = TokenPrice(input_per_mtok=2.0, output_per_mtok=8.0, cached_input_per_mtok=0.5)


def test_each_kind_of_token_is_charged_at_its_own_price() -> None:
    """1M fresh at 2, 1M cached at 0.5, 1M output at 8."""
    total = cost(
        PRICE, num_prompt_tokens=2_000_000, num_cached_tokens=1_000_000, num_output_tokens=1_000_000
    )

    assert total == pytest.approx(10.5)


def test_cached_tokens_cost_the_full_price_when_none_of_their_own_is_set() -> None:
    """No discount is assumed."""
    price = TokenPrice(input_per_mtok=2.0, output_per_mtok=8.0)

    total = cost(
        price, num_prompt_tokens=1_000_000, num_cached_tokens=1_000_000, num_output_tokens=0
    )

    assert total == pytest.approx(2.0)


def test_a_missing_price_or_count_is_unknown_and_not_free() -> None:
    """None, never 0: sums over calls must not hide what nobody priced."""
    assert cost(None, num_prompt_tokens=1, num_output_tokens=1) is None
    assert cost(PRICE, num_prompt_tokens=None, num_output_tokens=1) is None
    assert cost(PRICE, num_prompt_tokens=1, num_output_tokens=None) is None


def test_a_price_of_zero_is_free() -> None:
    """An own machine may well be priced at nothing."""
    free = TokenPrice(input_per_mtok=0, output_per_mtok=0)

    assert cost(free, num_prompt_tokens=9, num_output_tokens=9) == 0.0


@pytest.mark.parametrize(
    ("prompt", "cached", "output"), [(1, 2, 0), (1, -1, 0), (1, 0, -1), (-1, 0, 0)]
)
def test_counts_that_cannot_be_are_refused(prompt: int, cached: int, output: int) -> None:
    """More cached tokens than prompt tokens would pay the caller."""
    with pytest.raises(ValueError, match="token counts"):
        cost(PRICE, num_prompt_tokens=prompt, num_cached_tokens=cached, num_output_tokens=output)


def test_a_cached_token_may_not_cost_more_than_a_fresh_one() -> None:
    """It is most likely two prices swapped."""
    with pytest.raises(ConfigError, match="at most input_per_mtok"):
        TokenPrice(input_per_mtok=1, output_per_mtok=1, cached_input_per_mtok=2)
