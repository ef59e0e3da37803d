"""One step of continuous batching: ``schedule``, ``run``, ``settle``.

Pure Python, no thread, no torch: clock and runner are arguments, so the very
same code serves a model on a thread, or a cost model on a virtual clock. Not
thread-safe; whoever steps it owns it.
"""

import logging
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from failsoft.engine.request import (
    EngineEvent,
    EventSink,
    FinishedEvent,
    GenerationRequest,
    PromptEvent,
    TokenEvent,
)
from failsoft.engine.scheduler import Scheduler
from failsoft.engine.sequence import RowResult, Scored, Sequence, StepPlan
from failsoft.engine.step_log import StepLog
from failsoft.engine.step_stats import StepTallies
from failsoft.errors import DeadlineExceededError, EngineError, ForwardError
from failsoft.records import FinishReason, RequestRecord, StepRecord

logger = logging.getLogger(__name__)


class Runner(Protocol):
    """Computes a plan: a model, or a cost model that only lets time pass."""

    def run(self, plan: StepPlan) -> list[RowResult]:
        """Return one result for each row of *plan*, in its order.

        A row that fails alone (bad logits) is a ForwardError among the results.

        Raises:
            ForwardError: The forward failed as a whole. Running any part of the
                plan again must be safe.
        """


class StepLoop:
    """Requests in, events out, one forward at a time.

    Args:
        scheduler: Holds the requests.
        runner: Computes the plans.
        clock: Monotonic seconds.
        eos_token_ids: Tokens that end a request unless it ignores them.
        step_log: Where each step is recorded.
        on_record: Told of each finished request.
    """

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        runner: Runner,
        clock: Callable[[], float],
        eos_token_ids: frozenset[int],
        step_log: StepLog,
        on_record: Callable[[RequestRecord], None] | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.forward_errors_total = 0
        self.failed_steps_in_a_row = 0
        self.last_settled_s = clock()
        self.tallies = StepTallies()
        self._runner = runner
        self._clock = clock
        self._eos_token_ids = eos_token_ids
        self._step_log = step_log
        self._on_record = on_record

    def add(self, request: GenerationRequest, on_event: EventSink) -> None:
        """Queue *request*; the scheduler's ``check_fits`` must have let it through."""
        if not self.scheduler.has_work:
            self.last_settled_s = self._clock()
        sampling = request.sampling
        self.scheduler.add(
            request,
            on_event,
            seed=secrets.randbits(64) if sampling.seed is None else sampling.seed,
            end_token_ids=sampling.stop_token_ids
            | (self._eos_token_ids if request.is_ended_by_eos else frozenset()),
        )

    def end(self, request_id: str, reason: FinishReason, error: EngineError | None = None) -> None:
        """End a live request now; an id that is not live is ignored."""
        sequence = self.scheduler.get(request_id)
        if sequence is not None:
            self._finish(sequence, reason, error)

    def end_all(self, error: EngineError) -> None:
        """Fail every live request with *error*."""
        for sequence in self.scheduler.live():
            self._finish(sequence, FinishReason.ERROR, error)

    def abandon_all(self, error: EngineError) -> None:
        """Fail every live request without touching the books, which may be what broke."""
        for sequence in self.scheduler.live():
            self._emit(sequence, self._finished(sequence, FinishReason.ERROR, error))

    def step(self) -> None:
        """Drop what is past its deadline, then plan, run and settle one forward."""
        started_s = self._clock()
        for sequence in self.scheduler.expired(started_s):
            deadline_s = sequence.request.deadline_s or started_s
            late = DeadlineExceededError(late_s=started_s - deadline_s)
            self._finish(sequence, FinishReason.DEADLINE, late)
        if not self.scheduler.has_work:
            return
        plan = self.scheduler.schedule(started_s)
        results = self._run(plan)
        now_s = self._clock()
        self.tallies.note_gaps(plan, results, now_s)
        for sequence, result in self.scheduler.settle(plan, results, now_s):
            self._tell(sequence, result)
        has_failed = all(map(_is_models_fault, results))
        self.failed_steps_in_a_row = self.failed_steps_in_a_row + 1 if has_failed else 0
        self.last_settled_s = now_s
        self._log(plan, self._clock() - started_s)

    def _run(self, plan: StepPlan) -> list[RowResult]:
        """Run *plan*; when it fails as a whole, run its rows alone to find whose fault it is."""
        try:
            return self._runner.run(plan)
        except ForwardError as exc:
            self.forward_errors_total += 1
            if len(plan.rows) == 1:
                return [exc]
            logger.warning(
                "a forward of %d rows failed, running each alone: %s", len(plan.rows), exc
            )
        results: list[RowResult] = []
        for index, row in enumerate(plan.rows):
            # Scrubbed once: a second time would wipe what an earlier row wrote.
            alone = replace(plan, rows=(row,), scrub=() if index else plan.scrub)
            try:
                results.extend(self._runner.run(alone))
            except ForwardError as exc:
                self.forward_errors_total += 1
                results.append(exc)
        return results

    def _tell(self, sequence: Sequence, result: RowResult) -> None:
        """Pass on what a row gave, and end the sequence where a token or an error ends it."""
        if isinstance(result, EngineError):
            if isinstance(result, ForwardError) and result.kind == "bad_logits":
                self.forward_errors_total += 1
            self._finish(sequence, FinishReason.ERROR, result)
            return
        logprobs = None
        if isinstance(result, Scored):
            if result.prompt:
                self._emit(sequence, PromptEvent(sequence.request_id, result.prompt))
            logprobs, result = result.logprobs, result.token_id
        if result is None or not self._is_live(sequence):
            return
        if result in sequence.end_token_ids and sequence.num_output:
            stop = TokenEvent(sequence.request_id, result, logprobs)
            self._finish(sequence, FinishReason.STOP, None, stop=stop)
            return
        is_complete = self._follow(sequence, result)
        max_tokens = sequence.request.sampling.max_tokens
        if max_tokens and self._is_live(sequence):
            self._emit(sequence, TokenEvent(sequence.request_id, result, logprobs))
        if self._is_live(sequence) and (is_complete or sequence.num_output >= max_tokens):
            reason = FinishReason.STOP if is_complete else FinishReason.LENGTH
            self._finish(sequence, reason, None)

    def _follow(self, sequence: Sequence, token_id: int) -> bool:
        """Move its grammar past a settled token; whether its output is complete then."""
        if sequence.grammar is None or not sequence.num_output:
            return False
        try:
            sequence.grammar.advance(token_id)
        except ForwardError as exc:
            self._finish(sequence, FinishReason.ERROR, exc)
            return False
        return sequence.grammar.is_over

    def _is_live(self, sequence: Sequence) -> bool:
        """Whether it goes on: a sink that fails ends its sequence."""
        return self.scheduler.get(sequence.request_id) is sequence

    def _finish(
        self,
        sequence: Sequence,
        reason: FinishReason,
        error: EngineError | None,
        *,
        stop: TokenEvent | None = None,
    ) -> None:
        self.scheduler.remove(sequence)
        self._emit(sequence, self._finished(sequence, reason, error, stop))

    def _finished(
        self,
        sequence: Sequence,
        reason: FinishReason,
        error: EngineError | None,
        stop: TokenEvent | None = None,
    ) -> FinishedEvent:
        """Account for a sequence that has ended."""
        digest = self.scheduler.version_digest
        record = sequence.record(reason=reason, now_s=self._clock(), version_digest=digest)
        if self._on_record is not None:
            self._on_record(record)
        return FinishedEvent(sequence.request_id, record, error, stop)

    def _emit(self, sequence: Sequence, event: EngineEvent) -> None:
        try:
            sequence.on_event(event)
        except Exception:  # the caller's code, and the loop must outlive it
            logger.exception("the event sink of request %s failed", sequence.request_id)
            if self._is_live(sequence):
                self.scheduler.remove(sequence)
                self._finished(sequence, FinishReason.ABORT, None)

    def _log(self, plan: StepPlan, seconds: float) -> None:
        num_decode = sum(1 for row in plan.rows if row.is_sampling)
        record = StepRecord(
            step=plan.step,
            num_rows=len(plan.rows),
            num_prompt_tokens=plan.num_tokens - num_decode,
            num_decode_tokens=num_decode,
            num_kv_positions=sum(row.start + row.num_tokens for row in plan.rows),
            num_preempted=plan.num_preempted,
            num_waiting=self.scheduler.num_waiting,
            seconds=seconds,
        )
        self._step_log.append(record)
        self.tallies.note_step(plan, seconds)


def _is_models_fault(result: RowResult) -> bool:
    """Whether a row failed by something that may befall the next request too."""
    is_callers = isinstance(result, ForwardError) and result.is_callers_doing
    return isinstance(result, EngineError) and not is_callers
