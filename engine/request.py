"""What a caller asks of the engine, and what the engine tells back.

Knows nothing of text, models, torch or HTTP. Token ids are ints in
0..vocab_size-1; stamps and deadlines are ``time.monotonic()`` seconds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from failsoft.errors import EngineError, InvalidRequestError
from failsoft.records import RequestRecord

GREEDY_TEMPERATURE = 1e-5
"""At or below this a row is greedy: dividing logits by less overflows float32."""

_MAX_SEED = 2**64


def _number(value: object, param: str, low: float, high: float, *, open_low: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidRequestError(f"{param} must be a finite number, got {value!r}", param=param)
    if value > high or value < low or (open_low and value == low):
        bracket = "(" if open_low else "["
        raise InvalidRequestError(
            f"{param} must be in {bracket}{low:g}, {high:g}], got {value!r}", param=param
        )


def _integer(value: object, param: str, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidRequestError(
            f"{param} must be an integer in {low}..{high}, got {value!r}", param=param
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one request picks its tokens.

    Raises:
        InvalidRequestError: A value is out of range; ``param`` names the field.
    """

    max_tokens: int
    """Tokens to sample at most, at least 1."""
    temperature: float = 1.0
    """0..2; 0 is greedy."""
    top_p: float = 1.0
    """(0, 1]: keep the smallest set of tokens whose probability reaches it."""
    top_k: int = 0
    """Keep the k likeliest tokens; 0 keeps all."""
    min_p: float = 0.0
    """0..1: drop tokens below this share of the likeliest token's probability."""
    seed: int | None = None
    """0..2**64-1: the same seed gives the same noise, alone or in a batch."""
    ignore_eos: bool = False
    stop_token_ids: frozenset[int] = field(default_factory=frozenset)
    """Ends the request like an end-of-sequence token, also under *ignore_eos*."""

    def __post_init__(self) -> None:
        _integer(self.max_tokens, "max_tokens", 1, 2**31 - 1)
        _number(self.temperature, "temperature", 0.0, 2.0)
        _number(self.top_p, "top_p", 0.0, 1.0, open_low=True)
        _integer(self.top_k, "top_k", 0, 2**31 - 1)
        _number(self.min_p, "min_p", 0.0, 1.0)
        if self.seed is not None:
            _integer(self.seed, "seed", 0, _MAX_SEED - 1)

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is always taken, the first of equals."""
        return self.temperature <= GREEDY_TEMPERATURE or self.top_k == 1 or self.min_p == 1

    @property
    def has_top_cut(self) -> bool:
        """Whether tokens must be ranked to know which may be taken."""
        return self.top_k > 0 or self.top_p < 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One request, complete: what the scheduler needs and nothing else.

    Raises:
        InvalidRequestError: The prompt is empty or a field is out of range.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    arrival_s: float
    """When the caller's bytes came in; queue time and TTFT count from here."""
    priority: int = 0
    """Lower is served first; waiting lifts it (see ``EngineConfig.aging_s``)."""
    deadline_s: float | None = None
    """Absolute; past it the request is dropped wherever it is."""
    cache_salt: str = ""
    """Prefix blocks are shared only between equal salts: one per tenant."""

    def __post_init__(self) -> None:
        if not self.prompt_ids:
            raise InvalidRequestError("the prompt has no tokens; send at least one", param="prompt")
        _integer(self.priority, "priority", -1000, 1000)


class TokenEvent(NamedTuple):
    """The engine sampled one token for a request."""

    request_id: str
    token_id: int


class FinishedEvent(NamedTuple):
    """A request is over; nothing follows. *error* is set when the engine failed it."""

    request_id: str
    record: RequestRecord
    error: EngineError | None


EngineEvent = TokenEvent | FinishedEvent

EventSink = Callable[[EngineEvent], None]
"""Called on the engine's thread for each event of one request, in order.

It must not block: hand the event to your own thread or loop and return. What
it raises is logged and aborts that request alone.
"""
