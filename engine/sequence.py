"""One request in the engine's hands: its tokens, its KV blocks, how far it is.

Knows nothing of the queue it stands in, torch or HTTP. Owned by the engine's
thread; the scheduler is the only one that changes it.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from failsoft.engine.kv_block import chain_key
from failsoft.engine.request import EventSink, GenerationRequest, TokenLogprobs
from failsoft.engine.structured.grammar import TokenGrammar
from failsoft.errors import EngineError
from failsoft.records import FinishReason, RequestRecord, RequestTiming


class SequenceState(Enum):
    """Where a sequence stands."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(eq=False, slots=True, kw_only=True)
class Sequence:
    """The mutable side of a GenerationRequest.

    ``tokens[:num_computed]`` have their KV in ``blocks``; the rest is to do. A
    sequence is decoding when exactly one token is to do and some were sampled.
    """

    request: GenerationRequest
    on_event: EventSink
    order: int
    """Grows with each submit; breaks ties of rank."""
    rank: float
    """Lower is served first and preempted last."""
    seed: int
    """Of its sampling noise: the caller's, or drawn at submit and kept over preemption."""
    root_key: bytes
    tokens: list[int]
    end_token_ids: frozenset[int] = frozenset()
    """Tokens that end it: the caller's, and the model's own unless it ignores them."""
    grammar: TokenGrammar | None = None
    """Where its output stands in its grammar; kept over preemption, as the tokens are."""
    num_prompt_scored: int = 0
    """Prompt tokens behind the first whose log probabilities are out; kept over preemption."""
    state: SequenceState = SequenceState.WAITING
    num_computed: int = 0
    blocks: list[int] = field(default_factory=list)
    block_keys: list[bytes] = field(default_factory=list)
    """Keys of the leading full blocks of ``tokens``, as far as computed yet."""
    num_registered: int = 0
    """Leading blocks already offered to the prefix cache."""
    last_step: int = -1
    num_cached_tokens: int | None = None
    num_preemptions: int = 0
    first_scheduled_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None

    @property
    def request_id(self) -> str:
        """The caller's id."""
        return self.request.request_id

    @property
    def num_prompt(self) -> int:
        """Tokens of the prompt."""
        return len(self.request.prompt_ids)

    @property
    def num_output(self) -> int:
        """Tokens sampled so far."""
        return len(self.tokens) - len(self.request.prompt_ids)

    @property
    def num_todo(self) -> int:
        """Tokens whose KV is not computed yet."""
        return len(self.tokens) - self.num_computed

    @property
    def is_decoding(self) -> bool:
        """Whether one forward of one token yields the next."""
        return self.num_todo == 1 and self.num_output > 0

    @property
    def is_scoring(self) -> bool:
        """Whether log probabilities of its prompt are wanted and not all out."""
        is_wanted = self.request.sampling.prompt_logprobs is not None
        return is_wanted and self.num_prompt_scored < self.num_prompt - 1

    @property
    def sort_key(self) -> tuple[float, int]:
        """Total order of service."""
        return (self.rank, self.order)

    def extend_keys(self, num_blocks: int, block_size: int) -> list[bytes]:
        """Return the keys of the first *num_blocks* blocks, all full, computing what is new."""
        while len(self.block_keys) < num_blocks:
            start = len(self.block_keys) * block_size
            parent = self.block_keys[-1] if self.block_keys else self.root_key
            self.block_keys.append(chain_key(parent, self.tokens[start : start + block_size]))
        return self.block_keys[:num_blocks]

    def record(self, *, reason: FinishReason, now_s: float, version_digest: str) -> RequestRecord:
        """Return the frozen account of this request, ended at *now_s*."""
        timing = RequestTiming(
            arrival_s=self.request.arrival_s,
            first_scheduled_s=self.first_scheduled_s,
            first_token_s=self.first_token_s,
            last_token_s=self.last_token_s,
            finished_s=now_s,
            num_output_tokens=self.num_output,
        )
        return RequestRecord(
            request_id=self.request_id,
            version_digest=version_digest,
            finish_reason=reason,
            timing=timing,
            num_prompt_tokens=self.num_prompt,
            num_cached_tokens=self.num_cached_tokens or 0,
            num_output_tokens=self.num_output,
            num_preemptions=self.num_preemptions,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRow:
    """One sequence's share of a step: ``tokens[start : start + num_tokens]`` go in."""

    sequence: Sequence
    start: int
    num_tokens: int
    is_sampling: bool
    """Whether the last packed token is the last known one, so that its logits are needed."""
    num_scored: int = 0
    """Prompt tokens whose log probabilities this row's logits give."""

    @property
    def num_logits(self) -> int:
        """Trailing packed tokens whose logits are needed."""
        return self.num_scored + self.is_sampling

    @property
    def scored_ids(self) -> list[int]:
        """The prompt tokens that are scored, each from the logits of the token before it."""
        first = self.start + self.num_tokens - self.num_logits + 1
        return self.sequence.tokens[first : first + self.num_scored]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """What one forward computes. Rows are in packing order; blocks are in place."""

    step: int
    rows: tuple[PlannedRow, ...]
    num_preempted: int
    scrub: tuple[int, ...] = ()
    """Blocks to zero before anything is written: a failed row held them."""

    @property
    def num_tokens(self) -> int:
        """Tokens packed."""
        return sum(row.num_tokens for row in self.rows)


class Scored(NamedTuple):
    """The result of a row that wants log probabilities."""

    token_id: int | None
    """The sampled token; None for a row that was not sampling."""
    logprobs: TokenLogprobs | None
    """Of the sampled token, where its request wants them."""
    prompt: tuple[TokenLogprobs, ...]
    """Of the prompt tokens that the plan has scored."""


RowResult = int | Scored | EngineError | None
"""A sampled token (with log probabilities where wanted), why the row failed, or None for a
row that was neither sampling nor scoring."""
