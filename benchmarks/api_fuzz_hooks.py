"""Read by schemathesis: what it generates and our document cannot tell from what we mean.

Knows nothing of failsoft, so that schemathesis can load it from any folder.
"""

from typing import Any

import schemathesis

_DEADLINE = "x-failsoft-deadline-ms"
_ENOUGH_MS = 60_000
_LENGTHS = ("max_tokens", "max_completion_tokens")
_ENOUGH_TOKENS = 16
_MOST_TOKENS = 32_768
"""From here on the server that is fuzzed refuses them."""
_MOST_CHOICES = 16
_MOST_LOGPROBS = 20


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:  # noqa: ARG001 given by schemathesis
    """Write whole numbers as integers, and let each answer come soon and in time.

    To JSON Schema 5.0 is an integer; the server refuses it, as OpenAI's does. A deadline
    of a few milliseconds is answered by 504, as it should be, and a prompt with as many
    output tokens as the model has room for by 400: tests hold that.
    """
    headers = case.headers or {}
    asked = str(headers.get(_DEADLINE, ""))
    if asked.isascii() and asked.isdigit() and 1 <= int(asked) < _ENOUGH_MS:
        headers[_DEADLINE] = str(_ENOUGH_MS)
    if isinstance(case.body, dict | list):
        case.body = _whole(case.body)
    if isinstance(case.body, dict):
        _settle(case.body)


def _settle(body: dict[str, Any]) -> None:
    """Make fields that are right by themselves right together; wrong ones stay wrong.

    JSON Schema cannot say that ``best_of`` is ``n``, or that a prompt leaves room.
    """
    for name in _LENGTHS:
        if _is_in(body.get(name), 0, _MOST_TOKENS - 1):
            is_echo = body.get("echo") is True
            body[name] = min(body[name], _ENOUGH_TOKENS) if is_echo else max(1, body[name] % 8)
    if _is_in(body.get("min_tokens"), 0, _MOST_TOKENS - 1):
        body["min_tokens"] = 0
    if _is_in(body.get("best_of"), 1, _MOST_CHOICES):
        body["best_of"] = body.get("n")
    if isinstance(body.get("prompt"), list) and _is_in(body.get("n"), 1, _MOST_CHOICES):
        body["n"] = 1
        body["best_of"] = None
    if _is_in(body.get("top_logprobs"), 0, _MOST_LOGPROBS) and body.get("logprobs") in (
        None,
        False,
    ):
        body["logprobs"] = True
    if body.get("continue_final_message") is True and body.get("add_generation_prompt") is True:
        body["add_generation_prompt"] = False


def _is_in(value: Any, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_whole(each) for each in value]
    if isinstance(value, dict):
        return {key: _whole(each) for key, each in value.items()}
    return value
