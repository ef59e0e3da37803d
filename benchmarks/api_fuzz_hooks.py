"""Read by schemathesis: what it generates and our document cannot tell from what we mean.

Knows nothing of failsoft, so that schemathesis can load it from any folder.
"""

import os
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
_SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "boolean"}}}
_GOOD: dict[str, Any] = {
    "json": _SCHEMA,
    "json_schema": _SCHEMA,
    "regex": "a{1,3}",
    "choice": ["a", "b"],
    "grammar": 'start: "a"',
}
_FORMATS = ("response_format", "structured_outputs", "grammar", "json_schema")


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
        _shorten(case.body)
        is_valid = case.meta is not None and case.meta.generation.mode.is_positive
        if is_valid and not os.environ.get("FAILSOFT_FUZZ_RAW"):
            _settle(case.body)


def _shorten(body: dict[str, Any]) -> None:
    for name in _LENGTHS:
        if _is_in(body.get(name), 0, _MOST_TOKENS - 1):
            is_echo = body.get("echo") is True
            body[name] = min(body[name], _ENOUGH_TOKENS) if is_echo else max(1, body[name] % 8)


def _settle(body: dict[str, Any]) -> None:
    """Make fields that are right by themselves right together.

    JSON Schema cannot say that ``best_of`` is ``n``, or that a prompt leaves room.
    """
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
    _settle_formats(body)
    _settle_tools(body)


def _settle_formats(body: dict[str, Any]) -> None:
    """Ask for one thing, and for one that can be had: most schemas and patterns cannot."""
    named = body.get("response_format")
    if isinstance(named, dict):
        _replace(named, "schema", _SCHEMA)
        if isinstance(named.get("json_schema"), dict):
            _replace(named["json_schema"], "schema", _SCHEMA)
    inner = body.get("structured_outputs")
    owners = [(body, "guided_"), (body, ""), *([(inner, "")] if isinstance(inner, dict) else [])]
    for owner, prefix in owners:
        for name, good in _GOOD.items():
            _replace(owner, f"{prefix}{name}", good)
    asked = [
        (owner, f"{prefix}{name}")
        for owner, prefix in owners
        for name in (*_GOOD, "json_object")
        if owner.get(f"{prefix}{name}") in (*_GOOD.values(), True)
    ]
    if asked or isinstance(named, dict) or isinstance(inner, dict):
        body["allowed_token_ids"] = None  # a grammar may need others
    keeps_one = isinstance(named, dict) and named.get("type") != "text"
    for owner, name in asked if keeps_one else asked[1:]:
        owner[name] = None


def _settle_tools(body: dict[str, Any]) -> None:
    """Keep one tool, and let the choice name it; beside tools only JSON can be asked for."""
    tools = body.get("tools") or []
    if not isinstance(tools, list) or not all(map(_is_tool, tools)):
        return
    del tools[1:]
    choice = body.get("tool_choice")
    if not tools:
        body["tool_choice"] = "auto" if choice == "required" or isinstance(choice, dict) else choice
        return
    _replace(tools[0]["function"], "parameters", _SCHEMA)
    if isinstance(choice, dict) and _is_tool(choice):
        choice["function"]["name"] = tools[0]["function"]["name"]
    for name in (*_FORMATS, *(f"guided_{each}" for each in _GOOD)):
        body.pop(name, None)


def _is_tool(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("function"), dict)
        and (isinstance(value["function"].get("name"), str))
    )


def _replace(owner: dict[str, Any], name: str, good: Any) -> None:
    """Put *good* in place of a value of one of its types."""
    value = owner.get(name)
    if isinstance(value, type(good)) or (good is _SCHEMA and isinstance(value, str)):
        owner[name] = good


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
