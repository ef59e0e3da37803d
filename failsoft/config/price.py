"""What tokens cost. Unit: one currency of the user's choice, per million tokens."""

from dataclasses import dataclass
from typing import Annotated

from failsoft.config.allowed import between, check_fields
from failsoft.errors import ConfigError

PricePerMtok = Annotated[float, between(0, 1_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPrice:
    """A version's price; outside its digest, for a price change changes no answer.

    Raises:
        ConfigError: A price is negative, or a cached token costs more than a fresh one.
    """

    input_per_mtok: PricePerMtok
    output_per_mtok: PricePerMtok
    cached_input_per_mtok: PricePerMtok | None = None
    """Prompt tokens from the endpoint's prefix cache; None prices them like the others."""

    def __post_init__(self) -> None:
        check_fields(self)
        cached = self.cached_input_per_mtok
        if cached is not None and cached > self.input_per_mtok:
            raise ConfigError(
                key="cached_input_per_mtok",
                value=cached,
                allowed=f"at most input_per_mtok, {self.input_per_mtok:g}",
            )


def cost(
    price: TokenPrice | None,
    *,
    num_prompt_tokens: int | None,
    num_output_tokens: int | None,
    num_cached_tokens: int | None = None,
) -> float | None:
    """Return what one attempt cost at *price*.

    Args:
        price: Of the version that answered; None when it has none.
        num_prompt_tokens: All prompt tokens, cached ones included; None when not reported.
        num_output_tokens: None when not reported.
        num_cached_tokens: Prompt tokens from the prefix cache, 0..num_prompt_tokens;
            None counts all as fresh.

    Returns:
        The cost in the price's currency. None, never 0, when the price or a count
        is missing: a free call and an unknown one must not add up alike.

    Raises:
        ValueError: A count is negative, or more tokens are cached than the prompt has.
    """
    if price is None or num_prompt_tokens is None or num_output_tokens is None:
        return None
    cached = num_cached_tokens or 0
    if num_output_tokens < 0 or not 0 <= cached <= num_prompt_tokens:
        raise ValueError(
            f"token counts do not fit: {num_prompt_tokens} prompt, {cached} of them cached, "
            f"{num_output_tokens} output"
        )
    per_cached = price.cached_input_per_mtok
    if per_cached is None:
        per_cached = price.input_per_mtok
    total = (num_prompt_tokens - cached) * price.input_per_mtok
    total += cached * per_cached + num_output_tokens * price.output_per_mtok
    return total / 1_000_000
