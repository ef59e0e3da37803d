"""Ranges of body fields that the engine checks beyond JSON's types, for the OpenAPI document.

The checks themselves are `SamplingParams`' and `params`'; fuzzing holds both against one
another.
"""

from typing import Any

from pydantic import BaseModel

from failsoft.engine.http.params import MAX_CHOICES
from failsoft.engine.http.schemas import CompletionBody
from failsoft.engine.http.served import ServedModel
from failsoft.engine.http.tools import MAX_TOOLS
from failsoft.engine.request import MAX_LISTED_TOKENS, MAX_LOGPROBS

_MAX_INT = 2**31 - 1


def field_limits(body: type[BaseModel], served: ServedModel) -> dict[str, dict[str, Any]]:
    """Return what holds for a field, or for its members; ``kinds`` says for which types."""
    token = _range(0, served.vocab_size - 1)
    least = 0 if body is CompletionBody else 1  # 0 scores the prompt alone
    output = _range(least, served.max_model_len - 1)
    logprobs = _range(0, MAX_LOGPROBS)
    penalty = _range(-2, 2)
    bias = {
        "propertyNames": {"pattern": f"^0*({up_to(served.vocab_size - 1)})$", "maxLength": 9},
        "maxProperties": MAX_LISTED_TOKENS,
    }
    return {
        "model": {"enum": [served.name]},
        "prompt": {**token, "kinds": ("integer",)},
        "tokens": token,
        "stop_token_ids": token,
        "allowed_token_ids": {**token, "of_list": {"minItems": 1, "maxItems": MAX_LISTED_TOKENS}},
        "logit_bias": {**_range(-100, 100), "of_object": bias},
        "max_tokens": output,
        "max_completion_tokens": output,
        "min_tokens": _range(0, served.max_model_len - 1),
        "truncate_prompt_tokens": {**_range(-1, served.max_model_len), "not": {"const": 0}},
        "tools": {"of_list": {"maxItems": MAX_TOOLS}},
        "n": _range(1, MAX_CHOICES),
        "best_of": _range(1, MAX_CHOICES),
        "logprobs": logprobs,
        "top_logprobs": logprobs,
        "prompt_logprobs": logprobs,
        "temperature": _range(0, 2),
        "top_p": {"exclusiveMinimum": 0, "maximum": 1},
        "top_k": _range(0, _MAX_INT),
        "min_p": _range(0, 1),
        "presence_penalty": penalty,
        "frequency_penalty": penalty,
        "repetition_penalty": _range(0.01, 10),
        "seed": _range(0, 2**64 - 1),
        "priority": _range(-1000, 1000),
    }


def up_to(number: int) -> str:
    """Return a regular expression of the numbers 0..*number*, written without leading zeros."""
    digits = str(number)
    ways = [f"[0-9]{{1,{len(digits) - 1}}}"] if len(digits) > 1 else []
    for place, digit in enumerate(digits):
        low = "1" if place == 0 and len(digits) > 1 else "0"
        if digit > low:
            rest = f"[0-9]{{{len(digits) - place - 1}}}" if place < len(digits) - 1 else ""
            ways.append(f"{digits[:place]}[{low}-{int(digit) - 1}]{rest}")
    return "|".join([*ways, digits])


def _range(low: float, high: float) -> dict[str, Any]:
    return {"minimum": low, "maximum": high}
