"""What a caller gets: a whole reply, or deltas of one.

Every reply says which rung and which version answered, after which attempts, and
how old it is if the cache gave it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from failsoft.call_records import AttemptRecord
from failsoft.fallback.outside_json import parse_json

MAX_TOKENS = 2**53
"""An endpoint that reports more does not count tokens; a double is exact up to here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one reply; None where the endpoint did not say."""

    num_prompt_tokens: int | None
    num_output_tokens: int | None
    num_cached_tokens: int | None = None
    """Prompt tokens from the endpoint's own prefix cache; never more than the prompt's."""

    @classmethod
    def reported(cls, usage: object) -> Self:
        """Return what an OpenAI-shaped ``usage`` object says; a count that is none is not known.

        >>> Usage.reported({"prompt_tokens": 7, "completion_tokens": "many"})
        Usage(num_prompt_tokens=7, num_output_tokens=None, num_cached_tokens=None)
        """
        prompt = _count(usage, "prompt_tokens")
        details = usage.get("prompt_tokens_details") if isinstance(usage, Mapping) else None
        cached = _count(details, "cached_tokens")
        return cls(
            num_prompt_tokens=prompt,
            num_output_tokens=_count(usage, "completion_tokens"),
            num_cached_tokens=cached if cached is None or prompt is None else min(cached, prompt),
        )


def _count(table: object, name: str) -> int | None:
    value = table.get(name) if isinstance(table, Mapping) else None
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS
    return value if is_count else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a reply comes from: known from its first content on, before it is whole."""

    rung: str
    """Name of the endpoint that answers, or ``"cache"``."""
    version: str | None
    """Digest of the version that writes it; None for an endpoint that names none."""
    num_sent: int
    """Attempts that were sent for this call, over all rungs."""
    age_s: float | None = None
    """A cached reply's age in seconds; None for a live one."""
    is_stale: bool = False
    is_replay: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One complete reply."""

    call_id: str
    rung: str
    """Name of the endpoint that answered, or ``"cache"``."""
    rung_index: int
    """Its place in the ladder, from 0."""
    version: str | None
    """Digest of the version that wrote it; None for an endpoint that names none."""
    model: str | None
    """What the endpoint calls its model."""
    body: dict[str, Any] = field(repr=False)
    """The whole OpenAI-shaped reply."""
    attempts: tuple[AttemptRecord, ...]
    """Every attempt and every rung passed over, in order."""
    usage: Usage
    cost: float | None
    """Sum over the attempts, in the prices' currency; None when a price or a count is missing."""
    age_s: float | None = None
    """A cached reply's age in seconds; None for a live one."""
    is_stale: bool = False
    """Whether it is older than the ladder's ``ttl_s``: served because no model could answer."""
    is_replay: bool = False
    """Whether an idempotency key played an earlier reply back."""

    @property
    def origin(self) -> Origin:
        """Where it comes from."""
        return Origin(
            rung=self.rung,
            version=self.version,
            num_sent=sum(attempt.was_sent for attempt in self.attempts),
            age_s=self.age_s,
            is_stale=self.is_stale,
            is_replay=self.is_replay,
        )

    @property
    def text(self) -> str:
        """The first choice's text; empty when it called a tool."""
        choice = self.body["choices"][0]
        text = choice["message"].get("content") if "message" in choice else choice.get("text")
        return text or ""

    @property
    def message(self) -> dict[str, Any] | None:
        """The first choice's message as it came; None for a completion."""
        message: dict[str, Any] | None = self.body["choices"][0].get("message")
        return message

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """The first choice's tool calls as they came."""
        return list((self.message or {}).get("tool_calls") or ())

    @property
    def finish_reason(self) -> str | None:
        """Why the first choice stopped."""
        reason: str | None = self.body["choices"][0].get("finish_reason")
        return reason


def kept_body(text: str) -> dict[str, Any]:
    """Return the OpenAI-shaped reply that a store kept as *text*.

    Raises:
        ValueError: It is none: cut, or written by another version.
    """
    body = parse_json(text)
    choices = body.get("choices") if isinstance(body, dict) else None
    if not choices or not isinstance(choices, list):
        raise ValueError("no reply")
    return dict(body)


class Delta(str):
    """A piece of the first choice's text; the chunk it came in is beside it."""

    __slots__ = ("chunk",)

    chunk: dict[str, Any]
    """The OpenAI-shaped chunk."""

    @classmethod
    def of(cls, chunk: dict[str, Any]) -> "Delta":
        """Return the delta in *chunk*; empty when it holds no text of the first choice."""
        delta = cls(_text_of(chunk))
        delta.chunk = chunk
        return delta


def _text_of(chunk: dict[str, Any]) -> str:
    for choice in chunk.get("choices", ()):
        if choice.get("index", 0) == 0:
            delta = choice.get("delta")
            text = delta.get("content") if isinstance(delta, dict) else None
            text = text or choice.get("text")
            return text if isinstance(text, str) else ""
    return ""
