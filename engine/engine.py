"""The engine: one thread that steps a scheduler and a model; callers on any thread.

Callers hand requests and aborts to an inbox; the thread empties it before every
step, so an abort takes effect within one step. An engine without work sleeps on the
inbox and burns no CPU.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

import torch

from failsoft.config.engine import EngineConfig
from failsoft.engine.kv_block import BlockPool
from failsoft.engine.prepare import PreparedModel, prepare
from failsoft.engine.request import EventSink, GenerationRequest
from failsoft.engine.scheduler import Scheduler
from failsoft.engine.step_log import StepLog
from failsoft.engine.step_loop import Runner, StepLoop
from failsoft.errors import EngineStoppedError, InvalidRequestError, QueueFullError
from failsoft.records import EngineStats, FinishReason, RequestRecord

if TYPE_CHECKING:
    from failsoft.engine.models.load import LoadedModel

logger = logging.getLogger(__name__)

_SMOOTHING = 0.1
"""Weight of the newest request in the running mean of service times."""
_MAX_RETRY_AFTER_S = 60.0


class _Submit(NamedTuple):
    request: GenerationRequest
    on_event: EventSink


class _Abort(NamedTuple):
    request_id: str
    reason: FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """What a request must respect to be taken."""

    vocab_size: int
    """Width of the logits; token ids are below it."""
    max_model_len: int
    """Prompt plus output tokens of one request at most."""


class Engine:
    """Continuous batching of one model on one thread of its own.

    Use ``Engine.from_model`` for a loaded model. Every method may be called on any
    thread; events reach a request's sink on the engine's thread.

    Args:
        runner: Computes plans.
        num_blocks: KV blocks of the runner's pool.
        limits: What requests must respect.
        eos_token_ids: End a request unless it ignores them.
        version_digest: Of the version served; enters records and KV block keys.
        config: Settings.
        clock: Monotonic seconds.
        self_test_error: What the self-test at load measured, for `stats`.
    """

    def __init__(
        self,
        *,
        runner: Runner,
        num_blocks: int,
        limits: EngineLimits,
        eos_token_ids: frozenset[int],
        version_digest: str,
        config: EngineConfig,
        clock: Callable[[], float] = time.monotonic,
        self_test_error: float | None = None,
    ) -> None:
        self.config = config
        self.limits = limits
        self.step_log = StepLog()
        self._clock = clock
        self._self_test_error = self_test_error
        self._scheduler = Scheduler(
            pool=BlockPool(num_blocks=num_blocks, block_size=config.block_size),
            max_running=config.max_running,
            max_step_tokens=config.max_step_tokens,
            max_model_len=limits.max_model_len,
            aging_s=config.aging_s,
            is_prefix_cache_on=config.prefix_cache,
            version_digest=version_digest,
        )
        self._loop = StepLoop(
            scheduler=self._scheduler,
            runner=runner,
            clock=clock,
            eos_token_ids=eos_token_ids,
            step_log=self.step_log,
            on_record=self._note_service_time,
        )
        self._inbox: deque[_Submit | _Abort] = deque()
        self._live_ids: set[str] = set()
        self._mean_service_s: float | None = None
        self._is_draining = False
        self._is_closing = False
        self._death: EngineStoppedError | None = None
        lock = threading.RLock()
        self._wake = threading.Condition(lock)
        self._idle = threading.Condition(lock)
        self._thread = threading.Thread(target=self._run, name="failsoft-engine", daemon=True)
        self._thread.start()

    @classmethod
    def from_model(
        cls,
        loaded: "LoadedModel",
        config: EngineConfig,
        *,
        run: Callable[[Callable[[], PreparedModel]], PreparedModel] = lambda work: work(),
    ) -> Self:
        """Prepare, self-test and serve a loaded model.

        Args:
            loaded: The model.
            config: Settings.
            run: Runs the preparation, on another thread if it likes. The engine's own thread
                is the caller's to start: threads inherit their starter's priority.

        Raises:
            UnsupportedModelError: The engine cannot serve it right.
            ConfigError: The KV pool cannot hold what was asked for.
        """
        prepared = run(
            lambda: prepare(
                loaded.model,
                name=loaded.version.name,
                vocab_size=loaded.vocab_size,
                max_model_len=loaded.max_model_len,
                is_int8=loaded.version.dtype == "int8",
                config=config,
            )
        )
        return cls.from_prepared(
            prepared,
            vocab_size=loaded.vocab_size,
            eos_token_ids=loaded.eos_token_ids,
            version_digest=loaded.version.digest,
            config=config,
        )

    @classmethod
    def from_prepared(
        cls,
        prepared: PreparedModel,
        *,
        vocab_size: int,
        eos_token_ids: frozenset[int],
        version_digest: str,
        config: EngineConfig,
    ) -> Self:
        """Serve a model that has passed its self-test."""
        return cls(
            runner=prepared.runner,
            num_blocks=prepared.num_blocks,
            limits=EngineLimits(vocab_size=vocab_size, max_model_len=prepared.max_model_len),
            eos_token_ids=eos_token_ids,
            version_digest=version_digest,
            config=config,
            self_test_error=prepared.self_test.max_error,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def submit(self, request: GenerationRequest, on_event: EventSink) -> None:
        """Queue *request*; its events go to *on_event* on the engine's thread.

        Raises:
            InvalidRequestError: A token id of the prompt or of the sampling values is outside
                the model's vocabulary, or the request id is live already.
            RequestTooLongError: It can never fit.
            QueueFullError: ``max_waiting`` requests wait already.
            EngineStoppedError: The engine drains, is closed or has died.
        """
        low, high = min(request.prompt_ids), max(request.prompt_ids)
        if low < 0 or high >= self.limits.vocab_size:
            raise InvalidRequestError(
                f"token id {low if low < 0 else high} is outside this model's vocabulary "
                f"(0..{self.limits.vocab_size - 1})",
                param="prompt",
            )
        request.sampling.check_vocab(self.limits.vocab_size)
        self._scheduler.check_fits(request)
        with self._wake:
            self._refuse_if_stopped()
            # Free running slots are room too: an idle engine takes a burst of both.
            limit = self.config.max_waiting + self.config.max_running
            if request.request_id in self._live_ids:
                raise InvalidRequestError(
                    f"request id {request.request_id!r} is in use; send another",
                    param="request_id",
                )
            if len(self._live_ids) >= limit:
                raise QueueFullError(
                    num_waiting=len(self._live_ids) - self.config.max_running,
                    limit=self.config.max_waiting,
                    retry_after_s=self._retry_after_s(),
                )
            if not self._live_ids:
                # From here on, not from when the thread wakes: idleness is not a lack of progress.
                self._loop.last_settled_s = self._clock()
            self._live_ids.add(request.request_id)
            self._inbox.append(_Submit(request, on_event))
            self._wake.notify_all()

    def abort(self, request_id: str, reason: FinishReason = FinishReason.ABORT) -> None:
        """End a request within one step; unknown ids are ignored (it may just have ended)."""
        with self._wake:
            self._inbox.append(_Abort(request_id, reason))
            self._wake.notify_all()

    def stats(self) -> EngineStats:
        """Return a snapshot; counters of one instant, not of one lock."""
        pool, scheduler = self._scheduler.pool, self._scheduler
        num_live = len(self._live_ids)
        return EngineStats(
            is_alive=self._death is None and not self._is_closing,
            is_draining=self._is_draining,
            num_running=len(scheduler.running),
            num_waiting=max(0, num_live - len(scheduler.running)),
            num_blocks=pool.num_blocks,
            num_blocks_used=pool.num_used,
            num_blocks_cached=pool.num_cached,
            num_steps=scheduler.num_steps,
            seconds_since_progress=self._clock() - self._loop.last_settled_s if num_live else None,
            preemptions_total=scheduler.preemptions_total,
            prefix_queried_tokens_total=scheduler.prefix_queried_tokens_total,
            prefix_hit_tokens_total=scheduler.prefix_hit_tokens_total,
            forward_errors_total=self._loop.forward_errors_total,
            failed_steps_in_a_row=self._loop.failed_steps_in_a_row,
            steps=self._loop.tallies.read(),
            self_test_error=self._self_test_error,
        )

    def drain(self, timeout_s: float) -> bool:
        """Refuse new requests, wait for the others; True when all ended by themselves.

        What still runs after *timeout_s* seconds is failed with EngineStoppedError.
        """
        with self._wake:
            self._is_draining = True
            has_ended = self._idle.wait_for(lambda: not self._live_ids, timeout=timeout_s)
        if not has_ended:
            self.close()
        return has_ended

    def close(self) -> None:
        """Stop the thread; whatever still runs is failed with EngineStoppedError."""
        with self._wake:
            self._is_closing = True
            self._wake.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _refuse_if_stopped(self) -> None:
        if self._death is not None:
            # A new one each time: raising one instance again and again grows its traceback.
            raise EngineStoppedError(str(self._death))
        if self._is_closing or self._is_draining:
            raise EngineStoppedError("the engine is shutting down; ask another one")

    def _retry_after_s(self) -> float:
        """Guess when a place is free: mean service time over the requests served at once."""
        mean = self._mean_service_s or 1.0
        return min(_MAX_RETRY_AFTER_S, max(1.0, mean / self.config.max_running))

    # -- the engine's thread ----------------------------------------------------------------

    def _run(self) -> None:
        if self.config.num_threads is not None:
            # Counts for the calling thread alone, so it is this thread's to say.
            torch.set_num_threads(self.config.num_threads)
        try:
            while self._take_in():
                self._loop.step()
        except Exception as exc:  # a bug of ours: nothing can be trusted, say so to all
            logger.exception("the engine died")
            self._death = EngineStoppedError(
                f"the engine died of {type(exc).__name__}; restart it and report the log"
            )
        with self._wake:
            self._is_closing = True
        self._work_off_inbox(with_aborts=False)
        if self._death is not None:
            self._loop.abandon_all(self._death)
        else:
            self._loop.end_all(EngineStoppedError("the engine was stopped"))

    def _take_in(self) -> bool:
        """Empty the inbox, sleeping while there is nothing to do; False once closing."""
        with self._wake:
            while not (self._inbox or self._scheduler.has_work or self._is_closing):
                self._scheduler.check()
                self._wake.wait()
            is_closing = self._is_closing
        self._work_off_inbox(with_aborts=True)
        return not is_closing

    def _work_off_inbox(self, *, with_aborts: bool) -> None:
        """Hand what came in to the loop, in order: an abort is about what came before it."""
        for _ in range(len(self._inbox)):
            entry = self._inbox.popleft()
            if isinstance(entry, _Submit):
                self._loop.add(entry.request, entry.on_event)
            elif with_aborts:
                self._loop.end(entry.request_id, entry.reason)

    def _note_service_time(self, record: RequestRecord) -> None:
        """Count a request out; called for each one that ends, before its sink hears of it."""
        served = record.timing.e2e_s - record.timing.queue_s
        mean = self._mean_service_s
        self._mean_service_s = served if mean is None else mean + _SMOOTHING * (served - mean)
        with self._wake:
            self._live_ids.discard(record.request_id)
            if not self._live_ids:
                self._idle.notify_all()
