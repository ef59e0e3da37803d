"""From a checked body and its headers to the engine's request."""

from dataclasses import replace
from typing import NamedTuple

from starlette.datastructures import Headers

from failsoft.config.http import DEADLINE_HEADER, MAX_DEADLINE_MS, PROGRESS_HEADER
from failsoft.engine.http.schemas import GenerationBody
from failsoft.engine.http.served import ServedModel
from failsoft.engine.request import (
    GenerationRequest,
    SamplingParams,
    check_ids,
    check_integer,
)
from failsoft.engine.structured.grammar import Grammar
from failsoft.errors import InvalidRequestError, RequestTooLongError, UnknownModelError

DEFAULT_MAX_TOKENS = 512
"""Output tokens where neither the caller nor the version says: bounds a forgotten limit."""

MAX_CHOICES = 16
"""Choices for one prompt at most."""
MAX_TOTAL_CHOICES = 128
"""Choices of one request over all its prompts at most: each waits in the queue by itself."""


class Arrival(NamedTuple):
    """When a request came and until when it is wanted, in monotonic seconds."""

    arrival_s: float
    deadline_s: float | None


def read_arrival(headers: Headers, arrival_s: float) -> Arrival:
    """Read the caller's remaining time, in milliseconds, from its header.

    Raises:
        InvalidRequestError: It is no integer in 1..MAX_DEADLINE_MS.
    """
    value = headers.get(DEADLINE_HEADER)
    if value is None:
        return Arrival(arrival_s, None)
    is_number = value.isascii() and value.isdigit() and len(value) <= len(str(MAX_DEADLINE_MS))
    if not is_number or not 1 <= int(value) <= MAX_DEADLINE_MS:
        raise InvalidRequestError(
            f"the header {DEADLINE_HEADER} must be an integer in 1..{MAX_DEADLINE_MS} (ms left)",
            param=DEADLINE_HEADER,
        )
    return Arrival(arrival_s, arrival_s + int(value) / 1000)


def read_progress(headers: Headers) -> bool:
    """Read whether the caller wants signs of tokens whose text is held.

    Raises:
        InvalidRequestError: The header is neither ``on`` nor ``off``.
    """
    value = headers.get(PROGRESS_HEADER, "off")
    if value not in ("on", "off"):
        raise InvalidRequestError(
            f"the header {PROGRESS_HEADER} must be on or off", param=PROGRESS_HEADER
        )
    return value == "on"


def check_model(model: str | None, served: ServedModel) -> None:
    """Refuse a request for another model; one that names none means the served one.

    Raises:
        UnknownModelError: *model* is not served.
    """
    if model is not None and model != served.name:
        raise UnknownModelError(model=model, served=served.name)


class LogprobWishes(NamedTuple):
    """Alternatives wanted to each token, 0..20; None wants no log probabilities."""

    output: int | None
    prompt: int | None


def num_choices(body: GenerationBody, *, num_prompts: int) -> int:
    """Return the choices for each prompt.

    Raises:
        InvalidRequestError: Too many are asked for, or the best of more than are returned.
    """
    count = 1 if body.n is None else body.n
    check_integer(count, "n", 1, MAX_CHOICES)
    if count * num_prompts > MAX_TOTAL_CHOICES:
        raise InvalidRequestError(
            f"n = {count} for {num_prompts} prompts makes more than {MAX_TOTAL_CHOICES} choices; "
            "send fewer prompts at once",
            param="n",
        )
    if body.best_of not in (None, count):
        raise InvalidRequestError(
            f"best_of = {body.best_of} is not supported beside n = {count}: every choice that is "
            "computed is returned; leave it out and choose among n yourself",
            param="best_of",
            code="unsupported_parameter",
        )
    return count


def build_requests(
    body: GenerationBody,
    served: ServedModel,
    *,
    request_id: str,
    prompt_ids: list[int],
    prompt_param: str,
    arrival: Arrival,
    wishes: LogprobWishes,
    grammar: Grammar | None = None,
    least_tokens: int = 1,
) -> list[GenerationRequest]:
    """Return the engine's requests for one prompt: one for each choice.

    Choices differ in their noise alone, and share the prompt's KV blocks.

    Args:
        body: What was sent.
        served: The version.
        request_id: Theirs begin with it.
        prompt_ids: The prompt, not truncated yet.
        prompt_param: Where it stands in the body.
        arrival: When it came.
        wishes: Log probabilities that are wanted.
        grammar: What each choice must follow.
        least_tokens: Smallest ``max_tokens`` that makes sense, 0 or 1.

    Raises:
        InvalidRequestError: A sampling value or a token id is out of range.
        RequestTooLongError: Prompt plus output do not fit ``served.max_model_len``.
    """
    prompt_ids = _truncated(prompt_ids, body, served)
    check_ids(prompt_ids, prompt_param, served.vocab_size)
    max_tokens = _max_tokens(body, served, len(prompt_ids), prompt_param, least=least_tokens)
    sampling = _sampling(body, served, max_tokens, wishes)
    sampling.check_vocab(served.vocab_size)
    _check_can_sample(sampling, served)
    count = body.n or 1
    return [
        GenerationRequest(
            request_id=request_id if count == 1 else f"{request_id}-{index}",
            prompt_ids=tuple(prompt_ids),
            sampling=replace(sampling, choice_index=index),
            arrival_s=arrival.arrival_s,
            deadline_s=arrival.deadline_s,
            priority=body.priority or 0,
            cache_salt=body.cache_salt or "",
            grammar=grammar,
        )
        for index in range(count)
    ]


def _truncated(prompt_ids: list[int], body: GenerationBody, served: ServedModel) -> list[int]:
    """Return the end of the prompt that the caller wants kept."""
    keep = body.truncate_prompt_tokens
    if keep is None:
        return prompt_ids
    if keep == -1:
        asked = (
            body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
        )
        keep = max(1, served.max_model_len - max(1, asked or 1))
    check_integer(keep, "truncate_prompt_tokens", 1, served.max_model_len)
    return prompt_ids[-keep:]


def _check_can_sample(sampling: SamplingParams, served: ServedModel) -> None:
    """Refuse to allow only tokens that may not come yet."""
    ends = sampling.stop_token_ids | served.eos_token_ids
    allowed = sampling.allowed_token_ids
    if sampling.min_tokens and allowed and not sampling.ignore_eos and allowed <= ends:
        raise InvalidRequestError(
            "allowed_token_ids holds nothing but tokens that end the answer, and min_tokens "
            "forbids those at first; allow others or leave min_tokens out",
            param="allowed_token_ids",
        )


def _sampling(
    body: GenerationBody, served: ServedModel, max_tokens: int, wishes: LogprobWishes
) -> SamplingParams:
    """The caller's values, else the version's, else OpenAI's (temperature 1)."""

    def pick(name: str, otherwise: float) -> float:
        given: float | None = getattr(body, name)
        return served.default(name, otherwise) if given is None else given

    return SamplingParams(
        max_tokens=max_tokens,
        temperature=pick("temperature", 1.0),
        top_p=pick("top_p", 1.0),
        top_k=int(pick("top_k", 0)),
        min_p=pick("min_p", 0.0),
        seed=body.seed,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        repetition_penalty=pick("repetition_penalty", 1.0),
        logit_bias=body.logit_bias or {},
        allowed_token_ids=(
            None if body.allowed_token_ids is None else frozenset(body.allowed_token_ids)
        ),
        min_tokens=body.min_tokens or 0,
        ignore_eos=body.ignore_eos or False,
        stop_token_ids=frozenset(body.stop_token_ids or ()),
        logprobs=wishes.output,
        prompt_logprobs=wishes.prompt,
    )


def _max_tokens(
    body: GenerationBody, served: ServedModel, num_prompt: int, prompt_param: str, *, least: int
) -> int:
    limit = served.max_model_len
    if num_prompt >= limit:
        raise RequestTooLongError(
            num_tokens=num_prompt + 1,
            limit=limit,
            what=f"a prompt of {num_prompt} tokens and one output token",
            param=prompt_param,
        )
    param = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    asked = getattr(body, param)
    if asked is None:
        wanted = int(served.default("max_new_tokens", DEFAULT_MAX_TOKENS))
        return min(limit - num_prompt, wanted)
    if asked > limit - num_prompt:
        raise RequestTooLongError(
            num_tokens=num_prompt + asked,
            limit=limit,
            what=f"a prompt of {num_prompt} tokens plus {param} = {asked}",
            param=param,
        )
    if asked < least:
        raise InvalidRequestError(f"{param} must be at least {least}, got {asked}", param=param)
    return int(asked)
