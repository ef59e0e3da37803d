"""What a caller asks of the engine, and what the engine tells back.

Knows nothing of text, models, torch or HTTP. Token ids are ints in
0..vocab_size-1; stamps and deadlines are ``time.monotonic()`` seconds.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from failsoft.engine.structured.grammar import Grammar
from failsoft.errors import EngineError, InvalidRequestError
from failsoft.records import RequestRecord

GREEDY_TEMPERATURE = 1e-5
"""At or below this a row is greedy: dividing logits by less overflows float32."""

MAX_LOGPROBS = 20
"""Alternatives to a token at most, as at OpenAI."""
MAX_LISTED_TOKENS = 1024
"""Entries of a bias or of a list of allowed tokens at most: each step reads them all."""

_MAX_SEED = 2**64
_MAX_BIAS = 100.0


def _number(
    value: object, param: str, low: float, high: float, *, open_low: bool = False, of: str = ""
) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidRequestError(
            f"{param}{of} must be a finite number, got {value!r}", param=param
        )
    if value > high or value < low or (open_low and value == low):
        bracket = "(" if open_low else "["
        raise InvalidRequestError(
            f"{param}{of} must be in {bracket}{low:g}, {high:g}], got {value!r}", param=param
        )


def check_integer(value: object, param: str, low: int, high: int) -> None:
    """Raise InvalidRequestError unless *value* is an integer in low..high."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidRequestError(
            f"{param} must be an integer in {low}..{high}, got {value!r}", param=param
        )


def check_ids(ids: Iterable[int], param: str, vocab_size: int) -> None:
    """Raise InvalidRequestError unless all *ids* are a model's of *vocab_size* logits."""
    for token_id in ids:
        if not 0 <= token_id < vocab_size:
            raise InvalidRequestError(
                f"{param} names token {token_id}; this model's are 0..{vocab_size - 1}",
                param=param,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one request picks its tokens.

    Raises:
        InvalidRequestError: A value is out of range; ``param`` names the field.
    """

    max_tokens: int
    """Tokens to sample at most; 0 computes the prompt alone."""
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
    choice_index: int = 0
    """Which of the answers to one prompt this is: each has noise of its own under one seed."""
    ignore_eos: bool = False
    stop_token_ids: frozenset[int] = field(default_factory=frozenset)
    """Ends the request like an end-of-sequence token, also under *ignore_eos*."""
    min_tokens: int = 0
    """No token may end the request before it has this many; at most *max_tokens*."""
    presence_penalty: float = 0.0
    """-2..2: taken once from the logit of each token that the output holds."""
    frequency_penalty: float = 0.0
    """-2..2: taken from a token's logit for each time that the output holds it."""
    repetition_penalty: float = 1.0
    """0.01..10: divides positive logits of tokens in prompt or output, multiplies negative ones."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Token id to -100..100, added to its logit."""
    allowed_token_ids: frozenset[int] | None = None
    """No other token is sampled; None allows all."""
    logprobs: int | None = None
    """0..20 alternatives to each sampled token; None wants no log probabilities."""
    prompt_logprobs: int | None = None
    """0..20 alternatives to each prompt token but the first; None wants none."""

    def __post_init__(self) -> None:
        check_integer(self.max_tokens, "max_tokens", 0, 2**31 - 1)
        _number(self.temperature, "temperature", 0.0, 2.0)
        _number(self.top_p, "top_p", 0.0, 1.0, open_low=True)
        check_integer(self.top_k, "top_k", 0, 2**31 - 1)
        _number(self.min_p, "min_p", 0.0, 1.0)
        if self.seed is not None:
            check_integer(self.seed, "seed", 0, _MAX_SEED - 1)
        check_integer(self.choice_index, "choice_index", 0, 2**31 - 1)
        check_integer(self.min_tokens, "min_tokens", 0, self.max_tokens)
        _number(self.presence_penalty, "presence_penalty", -2.0, 2.0)
        _number(self.frequency_penalty, "frequency_penalty", -2.0, 2.0)
        _number(self.repetition_penalty, "repetition_penalty", 0.01, 10.0)
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                check_integer(getattr(self, name), name, 0, MAX_LOGPROBS)
        self._check_listed_tokens()

    def _check_listed_tokens(self) -> None:
        allowed = self.allowed_token_ids
        for name, tokens in (("logit_bias", self.logit_bias), ("allowed_token_ids", allowed)):
            if tokens is not None and len(tokens) > MAX_LISTED_TOKENS:
                raise InvalidRequestError(
                    f"{name} may name {MAX_LISTED_TOKENS} tokens, got {len(tokens)}", param=name
                )
        if allowed is not None and not allowed:
            raise InvalidRequestError(
                "allowed_token_ids allows no token; list some or leave it out",
                param="allowed_token_ids",
            )
        for token_id, bias in self.logit_bias.items():
            _number(bias, "logit_bias", -_MAX_BIAS, _MAX_BIAS, of=f" of token {token_id}")

    def check_vocab(self, vocab_size: int) -> None:
        """Refuse tokens that a model of *vocab_size* logits does not have.

        Raises:
            InvalidRequestError: ``param`` names the field.
        """
        check_ids(self.stop_token_ids, "stop_token_ids", vocab_size)
        check_ids(self.logit_bias, "logit_bias", vocab_size)
        check_ids(self.allowed_token_ids or (), "allowed_token_ids", vocab_size)

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
    grammar: Grammar | None = None
    """What the output must follow; where nothing may follow it, the request ends by ``stop``."""

    def __post_init__(self) -> None:
        if not self.prompt_ids:
            raise InvalidRequestError("the prompt has no tokens; send at least one", param="prompt")
        check_integer(self.priority, "priority", -1000, 1000)


class TokenLogprobs(NamedTuple):
    """How likely the model holds one token, and what it holds likeliest there.

    Natural logarithms of the softmax over the model's own logits: before bias, penalties and
    temperature, so they say what the model thinks and not how its answer was sampled.
    """

    token_id: int
    logprob: float
    rank: int
    """1 for the likeliest token of all; equals share a rank."""
    top: tuple[tuple[int, float], ...]
    """The likeliest tokens and their log probabilities, likeliest first."""


class PromptEvent(NamedTuple):
    """Log probabilities of prompt tokens, in order, from the second on; may come in parts."""

    request_id: str
    logprobs: tuple[TokenLogprobs, ...]


class TokenEvent(NamedTuple):
    """The engine sampled one token for a request."""

    request_id: str
    token_id: int
    logprobs: TokenLogprobs | None = None


class FinishedEvent(NamedTuple):
    """A request is over; nothing follows. *error* is set when the engine failed it."""

    request_id: str
    record: RequestRecord
    error: EngineError | None
    stop_token_id: int | None = None
    """The token that ended it: sampled and counted, yet no event of its own."""


EngineEvent = PromptEvent | TokenEvent | FinishedEvent

EventSink = Callable[[EngineEvent], None]
"""Called on the engine's thread for each event of one request, in order.

It must not block: hand the event to your own thread or loop and return. What
it raises is logged and aborts that request alone.
"""
