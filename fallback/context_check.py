"""Whether a rung can take a request at all, before it is asked.

Knows nothing of tokenizers: it skips a rung only when the request surely does
not fit, and leaves the close calls to the endpoint, whose own "too long" steps
down. Units: tokens; characters are counted as UTF-8 bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from failsoft.call_records import AttemptOutcome as Outcome

MAX_BYTES_PER_TOKEN = 6
"""Plain English has about 4.5 bytes a token; few texts beat 6 with today's vocabularies."""
CONTEXT_CODE = "context_length_exceeded"
_GRAMMAR_FIELDS = (
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "grammar",
    "json_schema",
)


def least_tokens(body: Mapping[str, Any]) -> int:
    """Return a low estimate of prompt plus output tokens that *body* needs."""
    prompt = body.get("messages")
    if prompt is None:
        prompt = body.get("prompt")
    output = body.get("max_completion_tokens") or body.get("max_tokens") or 1
    if not isinstance(output, int):
        output = 1
    return _least_prompt_tokens(prompt) + output


def lacks(
    body: Mapping[str, Any],
    *,
    context_tokens: int | None,
    tools: bool | None,
    json_schema: bool | None,
) -> Outcome | None:
    """Return why an endpoint cannot take *body*; None when it may.

    Args:
        body: The OpenAI-shaped request.
        context_tokens: The endpoint's context; None when not known.
        tools: Whether it takes tools; None when not known.
        json_schema: Whether it takes a JSON schema; None when not known.
    """
    if tools is False and uses_tools(body):
        return Outcome.SKIPPED_CAPABILITY
    if json_schema is False and _wants_schema(body):
        return Outcome.SKIPPED_CAPABILITY
    if context_tokens is not None and least_tokens(body) > context_tokens:
        return Outcome.SKIPPED_CONTEXT
    return None


def uses_tools(body: Mapping[str, Any]) -> bool:
    """Return whether the reply may call a tool, or a tool's result is in the talk.

    Either way the reply has or rests on side effects, so no cached one may stand for it.
    """
    if body.get("tools") or body.get("functions"):
        return True
    messages = body.get("messages")
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        return False
    return any(
        isinstance(m, Mapping) and (m.get("role") in ("tool", "function") or m.get("tool_calls"))
        for m in messages
    )


def _wants_schema(body: Mapping[str, Any]) -> bool:
    """Whether the answer must follow a schema or a grammar, by whichever name it is asked for.

    An endpoint that does not know the name would ignore it, and answer with anything.
    """
    wanted = body.get("response_format")
    if isinstance(wanted, Mapping) and wanted.get("type") == "json_schema":
        return True
    return any(body.get(name) is not None for name in _GRAMMAR_FIELDS)


def _least_prompt_tokens(prompt: object) -> int:
    """Count text bytes / 6, and token ids as they are; the longest of several prompts."""
    if isinstance(prompt, str):
        return -(-len(prompt.encode("utf-8", "surrogatepass")) // MAX_BYTES_PER_TOKEN)
    if not isinstance(prompt, Sequence):
        return 0
    if prompt and all(isinstance(part, int) for part in prompt):
        return len(prompt)
    if prompt and isinstance(prompt[0], Mapping):
        return sum(_message_tokens(message) for message in prompt)
    return max((_least_prompt_tokens(part) for part in prompt), default=0)


def _message_tokens(message: object) -> int:
    content = message.get("content") if isinstance(message, Mapping) else None
    if isinstance(content, str):
        return _least_prompt_tokens(content)
    if not isinstance(content, Sequence):
        return 0
    texts = (part.get("text") for part in content if isinstance(part, Mapping))
    return sum(_least_prompt_tokens(text) for text in texts if isinstance(text, str))
