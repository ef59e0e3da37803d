"""Frozen objects that cross parts; nothing here acts, reads a clock or imports a part.

Stamps are ``time.monotonic()`` seconds of the process that made them and mean
nothing in another process; durations do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from failsoft.config.price import TokenPrice as TokenPrice


class FinishReason(StrEnum):
    """Why a request stopped."""

    STOP = "stop"
    """An end-of-sequence token or a stop string."""
    LENGTH = "length"
    """It reached its own token limit."""
    ABORT = "abort"
    """The caller left or took it back."""
    DEADLINE = "deadline"
    """Its deadline passed."""
    ERROR = "error"
    """The engine failed it; the error says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTiming:
    """Monotonic stamps of one request, in seconds; None where it never got that far.

    TPOT as in vLLM and OpenTelemetry: the token that prefill yields is not counted.
    """

    arrival_s: float
    """When the caller's request came in, before it was tokenised."""
    first_scheduled_s: float | None
    first_token_s: float | None
    last_token_s: float | None
    finished_s: float
    num_output_tokens: int
    """Sampled tokens, the one from prefill included."""

    @property
    def queue_s(self) -> float:
        """Seconds from arrival to the first step that held it, or to the end if none did."""
        until = self.finished_s if self.first_scheduled_s is None else self.first_scheduled_s
        return until - self.arrival_s

    @property
    def prefill_s(self) -> float | None:
        """Seconds from the first step that held it to its first token."""
        if self.first_scheduled_s is None or self.first_token_s is None:
            return None
        return self.first_token_s - self.first_scheduled_s

    @property
    def inference_s(self) -> float | None:
        """Seconds from the first step that held it to its last token."""
        if self.first_scheduled_s is None or self.last_token_s is None:
            return None
        return self.last_token_s - self.first_scheduled_s

    @property
    def decode_s(self) -> float | None:
        """Seconds from its first token to its last; None without a token."""
        if self.first_token_s is None or self.last_token_s is None:
            return None
        return self.last_token_s - self.first_token_s

    @property
    def ttft_s(self) -> float | None:
        """Seconds from arrival to the first token, the queue included."""
        return None if self.first_token_s is None else self.first_token_s - self.arrival_s

    @property
    def tpot_s(self) -> float | None:
        """Mean seconds per output token after the first; None below two tokens."""
        if self.num_output_tokens < 2 or self.decode_s is None:
            return None  # 0.0 would read as a record
        return self.decode_s / (self.num_output_tokens - 1)

    @property
    def e2e_s(self) -> float:
        """Seconds from arrival to the end, however it ended."""
        return self.finished_s - self.arrival_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """What one finished request cost and how it went."""

    request_id: str
    version_digest: str
    finish_reason: FinishReason
    timing: RequestTiming
    num_prompt_tokens: int
    num_cached_tokens: int
    """Prompt tokens whose KV came from the prefix cache when it was first admitted."""
    num_output_tokens: int
    """Tokens sampled, whether or not the caller was shown them."""
    num_preemptions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """What one engine step did; a cost model of the engine is fitted on these."""

    step: int
    num_rows: int
    """Requests in the forward."""
    num_prompt_tokens: int
    """Tokens packed that had a successor known already (prefill, or recompute)."""
    num_decode_tokens: int
    """Tokens packed whose successor was sampled, one for each such row."""
    num_kv_positions: int
    """Key positions read, summed over rows: each row's context after this step."""
    num_preempted: int
    num_waiting: int
    """Requests left waiting after the step was planned."""
    seconds: float
    """Plan, forward and settle, by the engine's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """How often values fell below each of some bounds."""

    bounds: tuple[float, ...]
    """Upper bounds, rising, each within its bucket."""
    counts: tuple[int, ...]
    """Values in each bucket; one more than bounds, for what exceeds them all."""
    total: float
    """Sum of the values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """How one engine's steps went since its start."""

    seconds: Mapping[str, Distribution]
    """Duration of a step, by what it held: ``prefill``, ``decode`` or ``mixed``."""
    tokens: Distribution
    """Tokens packed into a step."""
    rows: Distribution
    """Requests in a step."""
    gaps_s: Distribution
    """Seconds between two tokens of one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """A snapshot of one engine; counters only grow."""

    is_alive: bool
    is_draining: bool
    num_running: int
    num_waiting: int
    num_blocks: int
    num_blocks_used: int
    """Blocks some request holds; cached blocks that nobody holds do not count."""
    num_blocks_cached: int
    """Free blocks whose content can still serve a prefix hit."""
    num_steps: int
    seconds_since_progress: float | None
    """Since the last settled step while work is there; None when idle."""
    preemptions_total: int
    prefix_queried_tokens_total: int
    prefix_hit_tokens_total: int
    forward_errors_total: int
    failed_steps_in_a_row: int
    """Steps in which no request got anywhere, since the last in which one did."""
    steps: StepStats | None = None
    """None where nobody counts them."""
    self_test_error: float | None = None
    """Largest error of the self-test at load, in standard deviations of the logits."""
