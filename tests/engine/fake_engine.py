"""An engine without a model: plays scripted tokens through the real contract.

One thread; each step gives every running request one token. A script is a
sequence of token ids that ends the request with ``stop`` when it runs out, or
of token ids that repeats until ``max_tokens`` when it is given as a callable.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from failsoft.engine.request import EventSink, FinishedEvent, GenerationRequest, TokenEvent
from failsoft.errors import (
    DeadlineExceededError,
    EngineError,
    EngineStoppedError,
    InvalidRequestError,
    QueueFullError,
)
from failsoft.records import EngineStats, FinishReason, RequestRecord, RequestTiming

ScriptItem = int | EngineError
Script = Callable[[GenerationRequest], Sequence[ScriptItem]]


@dataclass(slots=True, kw_only=True)
class _Job:
    request: GenerationRequest
    sink: EventSink
    script: list[ScriptItem]
    abort_reason: FinishReason | None = None
    stamps: list[float] = field(default_factory=list)
    scheduled_s: float | None = None


class FakeEngine:
    """Implements the Engine protocol over a script.

    Args:
        script: Called for each request; an EngineError in it fails the request there.
        step_s: Seconds between steps.
        max_running: Requests that get tokens at once; the others wait.
        max_waiting: Requests queued at most.
        vocab_size: Ids at or past it are refused.
    """

    def __init__(
        self,
        script: Script,
        *,
        step_s: float = 0.0,
        max_running: int = 8,
        max_waiting: int = 64,
        vocab_size: int = 1000,
    ) -> None:
        self.submitted: list[GenerationRequest] = []
        self.aborted: list[tuple[str, FinishReason]] = []
        self.finished: list[RequestRecord] = []
        self.is_frozen = False
        """While set, steps settle nothing: an engine that hangs."""
        self._script = script
        self._step_s = step_s
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._vocab_size = vocab_size
        self._lock = threading.Condition()
        self._jobs: list[_Job] = []
        self._is_draining = False
        self._is_closed = False
        self._num_steps = 0
        self._progress_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="fake-engine", daemon=True)
        self._thread.start()

    def submit(self, request: GenerationRequest, on_event: EventSink) -> None:
        """Queue a request."""
        with self._lock:
            if self._is_draining or self._is_closed:
                raise EngineStoppedError("the engine drains")
            if any(not 0 <= token < self._vocab_size for token in request.prompt_ids):
                raise InvalidRequestError("a token id is out of range", param="prompt")
            waiting = len(self._jobs) - self._max_running
            if waiting >= self._max_waiting:
                raise QueueFullError(num_waiting=waiting, limit=self._max_waiting, retry_after_s=2)
            if not self._jobs:
                self._progress_s = time.monotonic()
            script = list(self._script(request))
            self._jobs.append(_Job(request=request, sink=on_event, script=script))
            self.submitted.append(request)
            self._lock.notify_all()

    def abort(self, request_id: str, reason: FinishReason) -> None:
        """End a request at the next step."""
        with self._lock:
            for job in self._jobs:
                if job.request.request_id == request_id:
                    self.aborted.append((request_id, reason))
                    job.abort_reason = reason
            self._lock.notify_all()

    def stats(self) -> EngineStats:
        """Return a snapshot."""
        with self._lock:
            running = min(len(self._jobs), self._max_running)
            idle_s = time.monotonic() - self._progress_s if self._jobs else None
            return EngineStats(
                is_alive=self._thread.is_alive(),
                is_draining=self._is_draining,
                num_running=running,
                num_waiting=len(self._jobs) - running,
                num_blocks=100,
                num_blocks_used=running,
                num_blocks_cached=3,
                num_steps=self._num_steps,
                seconds_since_progress=idle_s,
                preemptions_total=1,
                prefix_queried_tokens_total=20,
                prefix_hit_tokens_total=10,
                forward_errors_total=0,
                failed_steps_in_a_row=0,
            )

    def drain(self, timeout_s: float) -> bool:
        """Wait for the running requests, then fail the rest."""
        with self._lock:
            self._is_draining = True
            is_clean = self._lock.wait_for(lambda: not self._jobs, timeout_s)
            self._fail_all()
        return is_clean

    def close(self) -> None:
        """Stop the thread."""
        with self._lock:
            self._is_closed = True
            self._fail_all()
            self._lock.notify_all()
        self._thread.join()

    def _fail_all(self) -> None:
        for job in list(self._jobs):
            self._finish(job, FinishReason.ERROR, EngineStoppedError("the engine stopped"))

    def _run(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._jobs or self._is_closed)
                if self._is_closed:
                    return
                if not self.is_frozen:
                    self._step()
                self._lock.notify_all()
            time.sleep(self._step_s or 0.0005)

    def _step(self) -> None:
        self._num_steps += 1
        self._progress_s = now = time.monotonic()
        for job in list(self._jobs):
            deadline_s = job.request.deadline_s
            if job.abort_reason is not None:
                self._finish(job, job.abort_reason, None)
            elif deadline_s is not None and now >= deadline_s:
                error = DeadlineExceededError(late_s=now - deadline_s)
                self._finish(job, FinishReason.DEADLINE, error)
        for job in self._jobs[: self._max_running]:
            self._play(job, now)

    def _play(self, job: _Job, now: float) -> None:
        job.scheduled_s = now if job.scheduled_s is None else job.scheduled_s
        item = job.script.pop(0) if job.script else None
        if isinstance(item, EngineError):
            self._finish(job, FinishReason.ERROR, item)
            return
        if item is not None:
            job.stamps.append(now)
            job.sink(TokenEvent(job.request.request_id, item))
        if len(job.stamps) >= job.request.sampling.max_tokens:
            self._finish(job, FinishReason.LENGTH, None)
        elif not job.script:
            self._finish(job, FinishReason.STOP, None)

    def _finish(self, job: _Job, reason: FinishReason, error: EngineError | None) -> None:
        self._jobs.remove(job)
        record = RequestRecord(
            request_id=job.request.request_id,
            version_digest="0" * 64,
            finish_reason=reason,
            timing=RequestTiming(
                arrival_s=job.request.arrival_s,
                first_scheduled_s=job.scheduled_s,
                first_token_s=job.stamps[0] if job.stamps else None,
                last_token_s=job.stamps[-1] if job.stamps else None,
                finished_s=time.monotonic(),
                num_output_tokens=len(job.stamps),
            ),
            num_prompt_tokens=len(job.request.prompt_ids),
            num_cached_tokens=min(16, len(job.request.prompt_ids) - 1),
            num_output_tokens=len(job.stamps),
            num_preemptions=0,
        )
        self.finished.append(record)
        job.sink(FinishedEvent(job.request.request_id, record, error))
