"""Small parts for engine tests: a scheduler with room for a story, and runners without weights."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from failsoft.engine.kv_block import BlockPool
from failsoft.engine.request import (
    EngineEvent,
    FinishedEvent,
    GenerationRequest,
    PromptEvent,
    SamplingParams,
    TokenEvent,
    TokenLogprobs,
)
from failsoft.engine.scheduler import Scheduler
from failsoft.engine.sequence import RowResult, StepPlan
from failsoft.engine.step_log import StepLog
from failsoft.engine.step_loop import Runner, StepLoop

BLOCK_SIZE = 4


class FakeClock:
    """A clock that moves only when told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def make_request(
    request_id: str,
    prompt: int | list[int] = 4,
    *,
    max_tokens: int = 4,
    arrival_s: float = 100.0,
    priority: int = 0,
    deadline_s: float | None = None,
    cache_salt: str = "",
    ignore_eos: bool = True,
) -> GenerationRequest:
    """Return a greedy request; an int prompt is that many tokens no other id shares."""
    offset = sum(request_id.encode()) * 1000
    ids = [offset + n for n in range(prompt)] if isinstance(prompt, int) else prompt
    return GenerationRequest(
        request_id=request_id,
        prompt_ids=tuple(ids),
        sampling=SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=ignore_eos),
        arrival_s=arrival_s,
        priority=priority,
        deadline_s=deadline_s,
        cache_salt=cache_salt,
    )


def make_scheduler(
    *,
    num_blocks: int = 64,
    max_running: int = 8,
    max_step_tokens: int = 64,
    max_model_len: int = 1000,
    aging_s: float = 10.0,
    prefix_cache: bool = True,
) -> Scheduler:
    """Return an empty scheduler over blocks of four tokens."""
    return Scheduler(
        pool=BlockPool(num_blocks=num_blocks, block_size=BLOCK_SIZE),
        max_running=max_running,
        max_step_tokens=max_step_tokens,
        max_model_len=max_model_len,
        aging_s=aging_s,
        is_prefix_cache_on=prefix_cache,
        version_digest="v",
    )


def next_token(tokens: list[int]) -> int:
    """Return the token that the fake model says after *tokens*: a hash of all of them."""
    value = 7
    for token in tokens:
        value = (value * 31 + token + 1) % 9973
    return value


@dataclass
class FakeRunner:
    """A model whose next token depends on the whole context, as it lies in the KV blocks.

    It keeps tokens where a model would keep keys and values, so that a wrong block
    table, a missed preemption or a bad prefix hit changes the text.
    """

    block_size: int = BLOCK_SIZE
    on_run: Callable[[StepPlan], None] = lambda plan: None
    plans: list[StepPlan] = field(default_factory=list)
    slots: dict[int, int] = field(default_factory=dict)

    def run(self, plan: StepPlan) -> list[RowResult]:
        self.plans.append(plan)
        for block in plan.scrub:
            for offset in range(self.block_size):
                self.slots.pop(block * self.block_size + offset, None)
        self.on_run(plan)
        results: list[RowResult] = []
        for row in plan.rows:
            until = row.start + row.num_tokens
            for position in range(row.start, until):
                self.slots[self._slot(row.sequence.blocks, position)] = row.sequence.tokens[
                    position
                ]
            context = [self.slots[self._slot(row.sequence.blocks, at)] for at in range(until)]
            results.append(next_token(context) if row.is_sampling else None)
        return results

    def _slot(self, blocks: list[int], position: int) -> int:
        return blocks[position // self.block_size] * self.block_size + position % self.block_size


def expected_output(prompt_ids: tuple[int, ...], num_tokens: int) -> list[int]:
    """Return what the fake model says after *prompt_ids* when nothing disturbs it."""
    tokens = list(prompt_ids)
    for _ in range(num_tokens):
        tokens.append(next_token(tokens))
    return tokens[len(prompt_ids) :]


class Collector:
    """A sink that keeps the events of many requests."""

    def __init__(self) -> None:
        self.tokens: dict[str, list[int]] = {}
        self.logprobs: dict[str, list[TokenLogprobs | None]] = {}
        self.prompt_logprobs: dict[str, list[TokenLogprobs]] = {}
        self.finished: dict[str, FinishedEvent] = {}
        self._changed = threading.Condition()

    def __call__(self, event: EngineEvent) -> None:
        with self._changed:
            if isinstance(event, TokenEvent):
                self.tokens.setdefault(event.request_id, []).append(event.token_id)
                self.logprobs.setdefault(event.request_id, []).append(event.logprobs)
            elif isinstance(event, PromptEvent):
                self.prompt_logprobs.setdefault(event.request_id, []).extend(event.logprobs)
            else:
                self.finished[event.request_id] = event
            self._changed.notify_all()

    def wait_finished(self, *request_ids: str, timeout_s: float = 30.0) -> None:
        """Block until all of *request_ids* have finished."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: all(name in self.finished for name in request_ids), timeout_s
            )
        assert done, f"unfinished after {timeout_s} s: {set(request_ids) - set(self.finished)}"

    def wait_tokens(self, request_id: str, count: int, timeout_s: float = 30.0) -> None:
        """Block until *request_id* has *count* tokens."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: len(self.tokens.get(request_id, [])) >= count, timeout_s
            )
        assert done, f"{request_id} has {len(self.tokens.get(request_id, []))} tokens"


def make_loop(
    scheduler: Scheduler,
    runner: Runner | None = None,
    *,
    clock: Callable[[], float] | None = None,
    eos: frozenset[int] = frozenset(),
) -> StepLoop:
    """Return a step loop over a fake model."""
    return StepLoop(
        scheduler=scheduler,
        runner=runner or FakeRunner(),
        clock=clock or FakeClock(),
        eos_token_ids=eos,
        step_log=StepLog(),
    )


def run_to_end(loop: StepLoop, *, max_steps: int = 10_000) -> int:
    """Step until no work is left, checking the books each time; return the steps taken."""
    for count in range(max_steps):
        if not loop.scheduler.has_work:
            loop.scheduler.check()
            return count
        loop.step()
        loop.scheduler.check()
    raise AssertionError(f"still busy after {max_steps} steps")


def no_sink(event: EngineEvent) -> None:
    """Ignore an event."""


def wait_until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Poll *condition* until it holds."""
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, f"still not so after {timeout_s} s"
        time.sleep(0.005)
