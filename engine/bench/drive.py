"""Puts a workload through an engine under one schedule, and notes what its callers meet.

All requests arrive when the drive starts. Everything runs on the engine's thread, inside the
sinks of its events: the next batch is in the inbox before the engine looks for work, so
waiting for a batch costs no time of its own. Stamps are ``time.monotonic()`` seconds.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from failsoft.engine.bench.run import Served
from failsoft.engine.bench.schedule import Room, Schedule, batches, num_kept
from failsoft.engine.bench.slots import WatchedRunner
from failsoft.engine.bench.workload import Item
from failsoft.engine.engine import Engine
from failsoft.engine.request import (
    EngineEvent,
    FinishedEvent,
    GenerationRequest,
    SamplingParams,
    TokenEvent,
)
from failsoft.errors import BenchError, FailsoftError
from failsoft.records import FinishReason

_POLL_S = 0.1


@dataclass(slots=True)
class _Caller:
    """One request under way."""

    item: Item
    num_tokens: int = 0
    first_s: float = 0.0
    last_s: float = 0.0
    left_s: float | None = None
    """When its reply was complete and had left; None while it has not."""


class Driver:
    """One workload under one schedule.

    Args:
        engine: Idle; runs its plans on *watch*.
        watch: Told which request is which, and whose reply is complete.
        items: The workload, its prompts as ids.
        schedule: Who may join whom.
        room: What a batch must fit into.
        eos_token_ids: End a reply whose length is not exact.
    """

    def __init__(
        self,
        engine: Engine,
        watch: WatchedRunner,
        items: Sequence[Item],
        schedule: Schedule,
        room: Room,
        *,
        eos_token_ids: frozenset[int],
    ) -> None:
        self._engine = engine
        self._watch = watch
        self._callers = [_Caller(item) for item in items]
        self._schedule = schedule
        self._room = room
        self._eos_token_ids = eos_token_ids
        self._batches = iter(batches(schedule, items, room))
        self._batch: list[int] = []
        self._num_replying = 0
        """Of the batch, replies that are not complete."""
        self._num_live = 0
        """Of the batch, requests that the engine has not finished."""
        self._error: FailsoftError | None = None
        self._done = threading.Event()
        self.started_s = 0.0
        self.ended_s = 0.0
        self.num_tokens = 0
        """Tokens so far that somebody asked for."""

    def run(self, on_progress: Callable[[int, int], None] = lambda _tokens, _ended: None) -> None:
        """Run to the end.

        Args:
            on_progress: Told of tokens and complete replies so far, ten times a second.

        Raises:
            FailsoftError: A request failed.
        """
        starter = _request("start", (1,), output_len=1, is_exact=True, arrival_s=time.monotonic())
        self._engine.submit(starter, self._start)
        while not self._done.wait(_POLL_S):
            on_progress(self.num_tokens, sum(c.left_s is not None for c in self._callers))
        on_progress(self.num_tokens, len(self._callers))
        if self._error is not None:
            raise self._error

    def served(self) -> tuple[Served, ...]:
        """Return what each caller met, in the workload's order."""
        return tuple(self._served(caller) for caller in self._callers)

    def _served(self, caller: _Caller) -> Served:
        assert caller.left_s is not None, "asked before the end"
        is_whole = self._schedule.keeps_rows
        first_s, last_s = (
            (caller.left_s, caller.left_s) if is_whole else (caller.first_s, caller.last_s)
        )
        gaps = caller.num_tokens - 1
        return Served(
            num_prompt_tokens=len(caller.item.prompt_ids),
            num_output_tokens=caller.num_tokens,
            ttft_s=first_s - self.started_s,
            tpot_s=None if is_whole or gaps < 1 else (last_s - first_s) / gaps,
            e2e_s=last_s - self.started_s,
        )

    # -- on the engine's thread -------------------------------------------------------------

    def _start(self, event: EngineEvent) -> None:
        if isinstance(event, FinishedEvent):
            self._watch.forget()
            self.started_s = time.monotonic()
            self._guarded(self._next_batch)

    def _guarded(self, act: Callable[[], None]) -> None:
        """Do *act*; what it raises ends the drive, for nobody else would hear of it."""
        try:
            act()
        except FailsoftError as exc:
            self._error = exc
            self._done.set()

    def _next_batch(self) -> None:
        self._batch = next(self._batches, [])
        if not self._batch:
            self.ended_s = max(c.left_s or 0.0 for c in self._callers)
            self._done.set()
            return
        items = [self._callers[index].item for index in self._batch]
        self._num_replying = self._num_live = len(items)
        limit = num_kept(items, self._room) if self._schedule.keeps_rows else None
        for index, item in zip(self._batch, items, strict=True):
            output_len, is_exact = item.output_len, item.is_exact
            if limit is not None:
                room = self._room.max_model_len - len(item.prompt_ids)
                output_len, is_exact = min(max(output_len, limit), room), True
            request = _request(
                str(index),
                item.prompt_ids,
                output_len=output_len,
                is_exact=is_exact,
                arrival_s=self.started_s,
            )
            self._watch.numbers[request.request_id] = index
            self._engine.submit(request, partial(self._hear, index))

    def _hear(self, index: int, event: EngineEvent) -> None:
        if isinstance(event, TokenEvent):
            self._take(self._callers[index], event)
            return
        if not isinstance(event, FinishedEvent):
            return
        caller = self._callers[index]
        if event.error is not None:
            # The first failure is the cause; what fails when the engine closes is not.
            self._error = self._error or BenchError(
                f"request {index} failed under {self._schedule.name}: {event.error}"
            )
            self._done.set()
            return
        self._complete(caller, str(index))
        self._num_live -= 1
        if not self._num_live:
            self._guarded(self._next_batch)

    def _take(self, caller: _Caller, event: TokenEvent) -> None:
        if event.request_id in self._watch.ended:
            return
        is_eos = event.token_id in self._eos_token_ids and not caller.item.is_exact
        if not is_eos:
            caller.last_s = time.monotonic()
            caller.first_s = caller.first_s or caller.last_s
            caller.num_tokens += 1
            self.num_tokens += 1
        if is_eos or caller.num_tokens >= caller.item.output_len:
            self._complete(caller, event.request_id)

    def _complete(self, caller: _Caller, request_id: str) -> None:
        """Note that a reply has all its tokens; it leaves now, or with its batch."""
        if request_id in self._watch.ended:
            return
        self._watch.ended.add(request_id)
        self._num_replying -= 1
        now_s = time.monotonic()
        caller.first_s = caller.first_s or now_s  # a reply without any token
        caller.last_s = caller.last_s or now_s
        if not self._schedule.keeps_rows:
            caller.left_s = now_s
        elif not self._num_replying:
            for index in self._batch:
                self._callers[index].left_s = now_s
                self._engine.abort(str(index), FinishReason.ABORT)


def _request(
    request_id: str,
    prompt_ids: tuple[int, ...],
    *,
    output_len: int,
    is_exact: bool,
    arrival_s: float,
) -> GenerationRequest:
    return GenerationRequest(
        request_id=request_id,
        prompt_ids=prompt_ids,
        sampling=SamplingParams(max_tokens=output_len, temperature=0.0, ignore_eos=is_exact),
        arrival_s=arrival_s,
    )
