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
    for name in _LENGTHS if isinstance(case.body, dict) else ():
        wanted = case.body.get(name)
        if type(wanted) is int and wanted in range(_ENOUGH_TOKENS, _MOST_TOKENS):
            case.body[name] = _ENOUGH_TOKENS


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_whole(each) for each in value]
    if isinstance(value, dict):
        return {key: _whole(each) for key, each in value.items()}
    return value
