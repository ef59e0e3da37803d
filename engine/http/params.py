"""From a checked body and its headers to the engine's request."""

from typing import NamedTuple

from starlette.datastructures import Headers

from failsoft.config.http import DEADLINE_HEADER, MAX_DEADLINE_MS
from failsoft.engine.http.schemas import GenerationBody
from failsoft.engine.http.served import ServedModel
from failsoft.engine.request import GenerationRequest, SamplingParams
from failsoft.errors import InvalidRequestError, RequestTooLongError, UnknownModelError

DEFAULT_MAX_TOKENS = 512
"""Output tokens where neither the caller nor the version says: bounds a forgotten limit."""


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


def check_model(model: str | None, served: ServedModel) -> None:
    """Refuse a request for another model; one that names none means the served one.

    Raises:
        UnknownModelError: *model* is not served.
    """
    if model is not None and model != served.name:
        raise UnknownModelError(model=model, served=served.name)


def build_request(
    body: GenerationBody,
    served: ServedModel,
    *,
    request_id: str,
    prompt_ids: list[int],
    prompt_param: str,
    arrival: Arrival,
) -> GenerationRequest:
    """Return the engine's request for one prompt.

    Raises:
        InvalidRequestError: A sampling value or a token id is out of range.
        RequestTooLongError: Prompt plus output do not fit ``served.max_model_len``.
    """
    check_ids(prompt_ids, served.vocab_size, prompt_param)
    check_ids(body.stop_token_ids or [], served.vocab_size, "stop_token_ids")
    max_tokens = _max_tokens(body, served, len(prompt_ids), prompt_param)
    return GenerationRequest(
        request_id=request_id,
        prompt_ids=tuple(prompt_ids),
        sampling=_sampling(body, served, max_tokens),
        arrival_s=arrival.arrival_s,
        deadline_s=arrival.deadline_s,
        priority=body.priority or 0,
        cache_salt=body.cache_salt or "",
    )


def _sampling(body: GenerationBody, served: ServedModel, max_tokens: int) -> SamplingParams:
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
        ignore_eos=body.ignore_eos or False,
        stop_token_ids=frozenset(body.stop_token_ids or ()),
    )


def _max_tokens(
    body: GenerationBody, served: ServedModel, num_prompt: int, prompt_param: str
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
    if asked < 1:
        raise InvalidRequestError(f"{param} must be at least 1, got {asked}", param=param)
    return int(asked)


def check_ids(ids: list[int], vocab_size: int, param: str) -> None:
    """Refuse token ids that the model has not.

    Raises:
        InvalidRequestError: *param* holds one.
    """
    for token_id in ids:
        if not 0 <= token_id < vocab_size:
            raise InvalidRequestError(
                f"{param} holds token id {token_id}; this model's are 0..{vocab_size - 1}",
                param=param,
            )
