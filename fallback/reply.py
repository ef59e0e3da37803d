"""What a caller gets: a whole reply, or deltas of one.

Every reply says which rung and which version answered, after which attempts, and
how old it is if the cache gave it.
"""

from dataclasses import dataclass, field
from typing import Any

from failsoft.call_records import AttemptRecord

CACHE_RUNG_NAME = "cache"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one reply; None where the endpoint did not say."""

    num_prompt_tokens: int | None
    num_output_tokens: int | None
    num_cached_tokens: int | None = None
    """Prompt tokens from the endpoint's own prefix cache."""


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
            text = (choice.get("delta") or {}).get("content") or choice.get("text")
            return text if isinstance(text, str) else ""
    return ""
