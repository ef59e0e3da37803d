"""What the server knows of the version it serves, and the state that its routes share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from failsoft.config.http import VERSION_HEADER, HttpConfig
from failsoft.engine.http.engine_port import EnginePort
from failsoft.engine.http.mailbox import Mailbox
from failsoft.engine.http.metrics import ServerMetrics
from failsoft.engine.structured.compiler import Compiler
from failsoft.engine.text.codec import TextCodec
from failsoft.errors import EngineError

_FINGERPRINT_CHARS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """One version, as callers see it."""

    name: str
    version_digest: str
    """Digest of the version's manifest: changes with anything that changes the answers."""
    created: int
    """Unix seconds; OpenAI's clients want one."""
    codec: TextCodec
    max_model_len: int
    """Prompt plus output tokens of one request at most, the KV pool's size included."""
    vocab_size: int
    eos_token_ids: frozenset[int]
    compiler: Compiler | None = None
    """Of grammars; None where the tokenizer's tokens cannot be told as bytes."""
    stop_strings: tuple[str, ...] = ()
    """Stop strings of the chat template, on top of the caller's."""
    generation_defaults: Mapping[str, Any] = field(default_factory=dict)
    """Sampling values where the caller gives none: ``temperature``, ``top_p``, ``top_k``,
    ``min_p``, ``repetition_penalty``, ``max_new_tokens``."""

    @property
    def system_fingerprint(self) -> str:
        """The head of the version's digest: tells two deployments of one name apart."""
        return self.version_digest[:_FINGERPRINT_CHARS]

    @property
    def headers(self) -> dict[str, str]:
        """What every answer's head says of who wrote it."""
        return {VERSION_HEADER: self.version_digest}

    def default(self, name: str, otherwise: float) -> float:
        """Return the version's value of a generation setting, or *otherwise*."""
        value: float | None = self.generation_defaults.get(name)
        return otherwise if value is None else value


class Stoppable(Protocol):
    """An answer under way."""

    def stop(self, error: EngineError) -> None:
        """End it with *error*, whatever the engine does."""


@dataclass(slots=True, kw_only=True)
class ServerState:
    """What the routes share. Touched on the event loop only."""

    engine: EnginePort
    served: ServedModel
    config: HttpConfig
    metrics: ServerMetrics
    mailbox: Mailbox = field(default_factory=Mailbox)
    open_answers: set[Stoppable] = field(default_factory=set)
    is_draining: bool = False
    """Set by the first signal, before the engine hears of it."""
