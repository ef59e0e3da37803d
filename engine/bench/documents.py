"""The arithmetic of many documents that arrive at once, beside what was measured; pure.

A synchronous API answers each caller with a whole reply. Served one after another, the last
caller waits for the sum; in one padded batch everybody waits for the slowest; packed and
scheduled per step, nobody waits for another's padding or length. Seconds, tokens, bytes.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from failsoft.engine.bench.figures import Spread
from failsoft.engine.bench.job import PADDED
from failsoft.engine.bench.run import ModeRun
from failsoft.engine.bench.slots import Step
from failsoft.errors import ConfigError

MODES = ("sequential", PADDED, "continuous")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The requests' lengths in tokens."""

    num_requests: int
    num_prompt: int
    longest_prompt: int
    num_output: int
    longest_output: int

    @classmethod
    def of(cls, run: ModeRun) -> "Shape":
        """Return the shape of the requests that *run* served."""
        prompts = [one.num_prompt_tokens for one in run.served]
        outputs = [one.num_output_tokens for one in run.served]
        return cls(
            num_requests=len(prompts),
            num_prompt=sum(prompts),
            longest_prompt=max(prompts),
            num_output=sum(outputs),
            longest_output=max(outputs),
        )

    @property
    def prompt_padding(self) -> int:
        """Tokens that a rectangle of all prompts adds to them."""
        return self.num_requests * self.longest_prompt - self.num_prompt

    @property
    def output_padding(self) -> int:
        """Tokens that are decoded and thrown away when all go on to the longest output."""
        return self.num_requests * self.longest_output - self.num_output

    @property
    def padding_share(self) -> float:
        """Share of a padded batch's token places that hold nobody's token."""
        places = self.num_requests * (self.longest_prompt + self.longest_output)
        return (self.prompt_padding + self.output_padding) / places


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a mode's own forwards cost, as medians of its steps."""

    prefill_token_s: float | None
    """Seconds for each token of forwards that held prompts; None if there was none."""
    decode_step_s: float | None
    """Seconds of a forward of single tokens."""

    @classmethod
    def of(cls, steps: Sequence[Step]) -> "Cost":
        """Return the cost of *steps*."""
        prefills = [step for step in steps if step.num_tokens > step.num_rows]
        decodes = [step.seconds for step in steps if step.num_tokens == step.num_rows]
        return cls(
            prefill_token_s=statistics.median(step.seconds / step.num_tokens for step in prefills)
            if prefills
            else None,
            decode_step_s=statistics.median(decodes) if decodes else None,
        )

    def seconds(self, *, num_prefill: int, num_steps: int) -> float | None:
        """Return what so many prompt tokens and forwards of single tokens take."""
        if self.prefill_token_s is None or self.decode_step_s is None:
            return None
        return num_prefill * self.prefill_token_s + num_steps * self.decode_step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One mode: the sum that should explain its wall time, and the wall time."""

    mode: str
    rule: str
    """The sum in words."""
    num_prefill: int
    num_steps: int
    cost: Cost
    expected_s: float | None
    measured_s: float
    num_forwards: int
    reply_s: Spread
    """What callers waited for their whole reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValues:
    """Bytes of keys and values, which bound how many can share a forward."""

    per_token: int
    rectangle: int
    """Every request as long as the longest prompt and the longest output."""
    packed: int
    """Every request as long as it becomes itself."""
    peak: int | None
    """Blocks really held at once under continuous batching; None when it was not run."""
    pool: int | None
    """What the engine's pool holds."""
    num_fitting: int | None
    """Rectangle rows that the pool would hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What a service that collects requests for a batch adds to everybody's wait."""

    window_s: float
    step_s: Spread
    """What a newcomer waits for at most under continuous batching: the step under way."""


def check_count(count: int, available: int) -> None:
    """Refuse more documents than there are.

    Raises:
        ConfigError: *count* is above *available*.
    """
    if count > available:
        raise ConfigError(key="--count", value=count, allowed=f"1..{available}, what the file has")


def account(run: ModeRun) -> Account:
    """Return the arithmetic of *run*."""
    shape = Shape.of(run)
    cost = Cost.of(run.steps)
    if run.mode == "sequential":
        rule = "sum of single times"
        num_prefill, num_steps = shape.num_prompt, shape.num_output - shape.num_requests
    elif run.mode == PADDED:
        batches = -(-shape.num_requests // run.num_slots)
        rule = "slowest member" if batches == 1 else f"slowest members of {batches} batches"
        num_prefill, num_steps = _padded(run)
    else:
        shared = -(-(shape.num_output - shape.num_requests) // run.num_slots)
        is_full = shared > shape.longest_output - 1
        rule = "all prompts, then " + ("full slots" if is_full else "the longest output")
        num_prefill, num_steps = shape.num_prompt, max(shape.longest_output - 1, shared)
    return Account(
        mode=run.mode,
        rule=rule,
        num_prefill=num_prefill,
        num_steps=num_steps,
        cost=cost,
        expected_s=cost.seconds(num_prefill=num_prefill, num_steps=num_steps),
        measured_s=run.wall_s,
        num_forwards=len(run.steps),
        reply_s=Spread.of(one.e2e_s for one in run.served),
    )


def _padded(run: ModeRun) -> tuple[int, int]:
    """Return the prompt places and the forwards after them of all padded batches."""
    num_prefill = num_steps = 0
    for first in range(0, len(run.served), run.num_slots):
        batch = run.served[first : first + run.num_slots]
        num_prefill += len(batch) * max(one.num_prompt_tokens for one in batch)
        num_steps += max(one.num_output_tokens for one in batch) - 1
    return num_prefill, num_steps


def key_values(runs: Sequence[ModeRun]) -> KeyValues:
    """Return the bytes of keys and values of the documents."""
    shape = Shape.of(runs[0])
    packed = next((run for run in runs if run.mode != PADDED), None)
    per_token = (packed or runs[0]).facts.kv_bytes_per_token
    row = (shape.longest_prompt + shape.longest_output) * per_token
    pool = peak = None
    if packed is not None:
        pool = packed.facts.num_kv_blocks * packed.facts.block_size * per_token
    for run in runs:
        if run.mode == "continuous":
            blocks = max((step.num_blocks for step in run.steps), default=0)
            peak = blocks * run.facts.block_size * per_token
    return KeyValues(
        per_token=per_token,
        rectangle=shape.num_requests * row,
        packed=(shape.num_prompt + shape.num_output) * per_token,
        peak=peak,
        pool=pool,
        num_fitting=None if pool is None else pool // row,
    )


def window(runs: Sequence[ModeRun], *, window_s: float) -> Window:
    """Return what collecting for *window_s* costs beside what joining the next step does."""
    steps = [step.seconds for run in runs if run.mode == "continuous" for step in run.steps]
    return Window(window_s=window_s, step_s=Spread.of(steps))


def to_document(
    accounts: Sequence[Account], shape: Shape, kv: KeyValues, waiting: Window
) -> dict[str, Any]:
    """Return the arithmetic in JSON's types; None where there is no figure."""
    return {
        "accounts": {
            one.mode: {
                "rule": one.rule,
                "expected_s": one.expected_s,
                "measured_s": one.measured_s,
                "num_forwards": one.num_forwards,
                "prefill_token_s": one.cost.prefill_token_s,
                "decode_step_s": one.cost.decode_step_s,
            }
            for one in accounts
        },
        "padding": {
            "prompt_tokens": shape.prompt_padding,
            "output_tokens": shape.output_padding,
            "share": shape.padding_share,
        },
        "kv_bytes": {
            "per_token": kv.per_token,
            "rectangle": kv.rectangle,
            "packed": kv.packed,
            "peak": kv.peak,
            "pool": kv.pool,
        },
        "window_s": {
            "mean": waiting.window_s / 2,
            "most": waiting.window_s,
            "step_p50": waiting.step_s.p50,
            "step_p95": waiting.step_s.p95,
        },
    }
