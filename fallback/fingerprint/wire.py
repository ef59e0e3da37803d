"""The requests of a fingerprint, and what their answers say. Pure; OpenAI's shapes.

An answer that lacks what its method needs raises `FingerprintError`: another method may do.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from failsoft.errors import FingerprintError
from failsoft.fallback.fingerprint.probes import MAX_TOKENS, QUESTIONS, TEXTS
from failsoft.fallback.fingerprint.records import Answer, Method

MIN_LOGPROB = -30.0
"""Lower ones count as this: engines write minus infinity in several ways."""
MAX_LOGPROB = 0.01
"""Rounding lifts a certain token a little above 0; what is higher is no log probability."""
MAX_POSITIONS = 1024
"""Tokens that a scored text may come as: it has some 200 characters at most."""
MAX_TEXT = 2000
"""Characters that count of an answer without numbers, whatever else an endpoint says."""
MAX_CHARS = 8192
"""Of an answer's tokens together: a byte of a scored text may be written as a dozen characters."""
MAX_NAME = 500
"""Characters that are kept of what an endpoint calls itself."""
PRIORITY = 2
"""Behind every caller of the last twenty seconds: lower is first, ten seconds lift by one."""
SALT = "failsoft-fingerprint"
"""Keeps the probes' KV blocks apart from every tenant's."""

_OWN_FIELDS = {"priority": PRIORITY, "cache_salt": SALT}


def route(method: Method) -> str:
    """Return the path below the base URL."""
    return "/completions" if method is Method.SCORED else "/chat/completions"


def num_probes(method: Method) -> int:
    """Return how many probes *method* asks."""
    return len(TEXTS) if method is Method.SCORED else len(QUESTIONS)


def body(method: Method, probe: int, *, model: str | None, is_ours: bool) -> dict[str, Any]:
    """Return the request of one probe.

    Args:
        method: How it asks.
        probe: Its index.
        model: What the endpoint calls the model; None names none.
        is_ours: Whether fields that only failsoft's engine knows may be set.
    """
    fields: dict[str, Any] = {"temperature": 0, **({"model": model} if model else {})}
    if is_ours:
        fields |= _OWN_FIELDS
    if method is Method.SCORED:
        # Others sample a token at least; it is cut off again.
        max_tokens = 0 if is_ours else 1
        scored = {"prompt": TEXTS[probe], "echo": True, "logprobs": 1, "max_tokens": max_tokens}
        return fields | scored
    asked = [{"role": "user", "content": QUESTIONS[probe]}]
    fields |= {"messages": asked, "max_tokens": MAX_TOKENS}
    return fields | ({"logprobs": True, "top_logprobs": 2} if method is Method.GREEDY else {})


def companion(number: int, *, model: str | None) -> dict[str, Any]:
    """Return a request that only keeps our engine busy beside the probes, ragged by *number*."""
    text = TEXTS[number % len(TEXTS)][: 20 + 13 * (number % 5)]
    named = {"model": model} if model else {}
    return {"prompt": text, "max_tokens": 24, "ignore_eos": True, **named, **_OWN_FIELDS}


def read(method: Method, reply: Any) -> Answer:
    """Return what a reply's JSON says.

    Raises:
        FingerprintError: It lacks what *method* needs.
    """
    try:
        choice = reply["choices"][0]
        if method is Method.SCORED:
            return _scored(choice["logprobs"], num_prompt=reply["usage"]["prompt_tokens"])
        if method is Method.GREEDY:
            return _greedy(choice["logprobs"]["content"])
        text = choice["message"]["content"]
        if not isinstance(text, str):
            raise TypeError("no text")
        return Answer(tokens=(text[:MAX_TEXT],), logprobs=(), margins=())
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as exc:
        what = "text" if method is Method.TEXT else "log probabilities"
        raise FingerprintError(f"its answers carry no {what}") from exc


def _scored(logprobs: Mapping[str, Any], *, num_prompt: int) -> Answer:
    """Read an echoed text; its first token has no log probability, and what follows was sampled."""
    tokens = logprobs["tokens"][1:num_prompt]
    if not 2 <= num_prompt <= MAX_POSITIONS or len(tokens) != num_prompt - 1:
        raise ValueError("the text was not echoed")
    numbers = tuple(_number(value) for value in logprobs["token_logprobs"][1:num_prompt])
    return _checked(Answer(tokens=tuple(tokens), logprobs=numbers, margins=()))


def _greedy(content: Sequence[Mapping[str, Any]]) -> Answer:
    """Read a chat; an endpoint that takes no ``max_tokens`` says more than was asked."""
    content = content[:MAX_TOKENS]
    return _checked(
        Answer(
            tokens=tuple(said["token"] for said in content),
            logprobs=tuple(_number(said["logprob"]) for said in content),
            margins=tuple(_margin(said.get("top_logprobs") or []) for said in content),
        )
    )


def _margin(top: Sequence[Mapping[str, Any]]) -> float | None:
    best = sorted((_number(one["logprob"]) for one in top), reverse=True)[:2]
    return best[0] - best[1] if len(best) == 2 else None


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise TypeError("not a number")
    if value > MAX_LOGPROB:
        raise ValueError("not a log probability")
    # Compared before it is converted: JSON's integers may be too large for a float.
    return MIN_LOGPROB if value < MIN_LOGPROB else float(value)


def _checked(answer: Answer) -> Answer:
    if len(answer.tokens) != len(answer.logprobs) or not all(
        isinstance(token, str) for token in answer.tokens
    ):
        raise TypeError("tokens and numbers do not match")
    if sum(map(len, answer.tokens)) > MAX_CHARS:
        raise ValueError("these are no tokens of what was asked")
    return answer
