"""Log probabilities as each route writes them: chats' way, completions' way, vLLM's way.

A token is shown by its own text, which for a part of a character is its bytes
(``engine/text/token_text.py``); the text of an answer is made of whole characters, so tokens
joined need not be it.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from failsoft.engine.http.choice import ShownToken
from failsoft.engine.request import TokenLogprobs
from failsoft.engine.text.token_text import TokenTexts


def chat_logprobs(
    tokens: Iterable[ShownToken], texts: TokenTexts, *, num_top: int
) -> dict[str, Any]:
    """Return a chat choice's ``logprobs``."""
    content = []
    for shown in tokens:
        assert shown.logprobs is not None, "only an echoed prompt has tokens without"
        entry = _chat_entry(shown.token_id, shown.logprobs.logprob, texts)
        top = [_chat_entry(*pair, texts) for pair in shown.logprobs.top[:num_top]]
        content.append({**entry, "top_logprobs": top})
    return {"content": content, "refusal": None}


def _chat_entry(token_id: int, logprob: float, texts: TokenTexts) -> dict[str, Any]:
    text, data = texts.of(token_id)
    return {"token": text, "logprob": logprob, "bytes": None if data is None else list(data)}


def completion_logprobs(
    tokens: Sequence[ShownToken], texts: TokenTexts, *, num_top: int
) -> dict[str, Any]:
    """Return a completion choice's ``logprobs``; the first echoed token's are null."""
    return {
        "tokens": [texts.of(shown.token_id).text for shown in tokens],
        "token_logprobs": [
            None if shown.logprobs is None else shown.logprobs.logprob for shown in tokens
        ],
        "top_logprobs": [
            None if shown.logprobs is None else _by_text(shown.logprobs, texts, num_top)
            for shown in tokens
        ],
        "text_offset": [shown.offset for shown in tokens],
    }


def _by_text(logprobs: TokenLogprobs, texts: TokenTexts, num_top: int) -> dict[str, float]:
    """Return the likeliest tokens and the one that stands there, by their texts.

    Of tokens that read the same the likeliest counts.
    """
    found: dict[str, float] = {}
    for token_id, logprob in (*logprobs.top[:num_top], (logprobs.token_id, logprobs.logprob)):
        found.setdefault(texts.of(token_id).text, logprob)
    return found


def prompt_logprobs(
    prompt: Iterable[TokenLogprobs], texts: TokenTexts, *, num_top: int
) -> list[dict[str, Any] | None]:
    """Return vLLM's ``prompt_logprobs``: token id to its numbers, null for the first token."""
    return [None, *(_by_id(logprobs, texts, num_top) for logprobs in prompt)]


def _by_id(logprobs: TokenLogprobs, texts: TokenTexts, num_top: int) -> dict[str, Any]:
    own = (logprobs.rank, logprobs.token_id, logprobs.logprob)
    top = [(rank, *pair) for rank, pair in enumerate(logprobs.top[:num_top], 1)]
    return {
        str(token_id): {
            "logprob": logprob,
            "rank": rank,
            "decoded_token": texts.of(token_id).text,
        }
        for rank, token_id, logprob in (own, *top)
    }
