"""Request fields that would change the answer and that this server cannot honour yet.

Each is accepted with the values that change nothing, and refused by name
otherwise: a client is told, never given another answer than it asked for.
Fields in neither this table nor the schemas steer no answer and are let pass.
"""

from typing import Any

from failsoft.errors import InvalidRequestError

_NOTHING: tuple[Any, ...] = ()
_OFF: tuple[Any, ...] = (False,)

BOTH: dict[str, tuple[Any, ...]] = {
    "length_penalty": (1,),
    "typical_p": (1,),
    "use_beam_search": _OFF,
    "bad_words": ([],),
    "detokenize": (True,),
    "spaces_between_special_tokens": (True,),
    "return_tokens_as_token_ids": _OFF,
    "return_token_ids": _OFF,
    "guided_whitespace_pattern": _NOTHING,
    "structural_tag": _NOTHING,
    "regex": _NOTHING,
    "ebnf": _NOTHING,
    "logits_processors": ([],),
    "repeat_penalty": (1,),
}
"""Field to the values that change nothing; null never does."""

CHAT: dict[str, tuple[Any, ...]] = {
    **BOTH,
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": _NOTHING,
    "web_search_options": _NOTHING,
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "chat_template": _NOTHING,
    "add_special_tokens": _OFF,
    "documents": ([],),
    "echo": _OFF,
}

COMPLETION: dict[str, tuple[Any, ...]] = {
    **BOTH,
    "suffix": ("",),
    "prompt_embeds": _NOTHING,
    "tools": ([],),
    "tool_choice": ("none", "auto"),
}

TOKENIZE_CHAT: dict[str, tuple[Any, ...]] = {"chat_template": _NOTHING, "add_special_tokens": _OFF}


def refuse_unsupported(body: dict[str, Any], table: dict[str, tuple[Any, ...]]) -> None:
    """Refuse the first field of *body* that asks for what *table* says is missing.

    Raises:
        InvalidRequestError: ``param`` names the field, the code is ``unsupported_parameter``.
    """
    for name, neutral in table.items():
        value = body.get(name)
        if value is None or any(_is_same(value, other) for other in neutral):
            continue
        accepted = ", ".join(["null", *map(repr, neutral)])
        raise InvalidRequestError(
            f"{name} is not supported yet; leave it out (accepted: {accepted})",
            param=name,
            code="unsupported_parameter",
        )


def _is_same(value: object, other: object) -> bool:
    """Compare as JSON does: true is not 1."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)
