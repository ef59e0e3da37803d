"""Prometheus metrics of one server, in a registry of its own.

Names are vLLM's with the prefix ``failsoft_``, so its dashboards port by prefix.
Durations of a request are observed when it ends, from its record. End-to-end
time counts answered requests only: one that its caller dropped says nothing
about how fast answers are. What the engine counts is read at scrape time
(`engine_collector`).
"""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from failsoft.engine.http.engine_collector import EngineCollector
from failsoft.engine.http.engine_port import EnginePort
from failsoft.engine.http.errors import fault_of
from failsoft.engine.request import FinishedEvent, GenerationRequest
from failsoft.errors import EngineError
from failsoft.records import FinishReason, RequestTiming

_LATENCY_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)
_TOKEN_S_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 5)
_COUNT_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000)
_CHOICE_BUCKETS = (1, 2, 4, 8, 16)

_DIGEST_CHARS = 12
_ANSWERED = (FinishReason.STOP, FinishReason.LENGTH)

_HISTOGRAMS: dict[str, tuple[str, tuple[float, ...]]] = {
    "time_to_first_token_seconds": (
        "Arrival to the first token, the queue included.",
        _LATENCY_BUCKETS,
    ),
    "request_time_per_output_token_seconds": (
        "Mean gap between a request's tokens after the first.",
        _TOKEN_S_BUCKETS,
    ),
    "e2e_request_latency_seconds": (
        "Arrival to the end of an answered request.",
        _LATENCY_BUCKETS,
    ),
    "request_queue_time_seconds": (
        "Arrival to the first step that held the request.",
        _LATENCY_BUCKETS,
    ),
    "request_prefill_time_seconds": (
        "First step that held the request to its first token.",
        _LATENCY_BUCKETS,
    ),
    "request_decode_time_seconds": ("First token to the last.", _LATENCY_BUCKETS),
    "request_inference_time_seconds": (
        "First step that held the request to its last token.",
        _LATENCY_BUCKETS,
    ),
    "request_prompt_tokens": ("Prompt tokens of an ended request.", _COUNT_BUCKETS),
    "request_generation_tokens": ("Tokens sampled for an ended request.", _COUNT_BUCKETS),
    "request_max_num_generation_tokens": (
        "Tokens sampled for the longest choice of an answer.",
        _COUNT_BUCKETS,
    ),
    "request_params_max_tokens": ("max_tokens of a taken request.", _COUNT_BUCKETS),
    "request_params_n": ("Choices for each prompt of a taken request.", _CHOICE_BUCKETS),
}
"""What it is, and the buckets' bounds."""

_COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "prompt_tokens": ("Prompt tokens of ended requests.", ()),
    "generation_tokens": ("Tokens sampled for ended requests.", ()),
    "request_success": ("Answered requests.", ("finished_reason",)),
    "requests_rejected": ("Requests refused before the engine took them.", ("reason",)),
    "requests_aborted": ("Requests whose caller left, by how far they were.", ("stage",)),
    "requests_expired": ("Requests dropped at their deadline.", ()),
    "request_errors": ("Requests that the engine failed.", ("kind",)),
    "waste_tokens": ("Tokens sampled after a stop string or after the caller left.", ()),
}


class ServerMetrics:
    """Counts what happens to requests. Call on the event loop only.

    Args:
        engine: Asked for its stats at each scrape.
        model_name: Value of the label ``model_name``.
        version_digest: Of what it serves: one process serves one version, so a metric of its
            own says it for all the others.
    """

    def __init__(self, engine: EnginePort, model_name: str, *, version_digest: str) -> None:
        self._model_name = model_name
        self._registry = CollectorRegistry()
        self._registry.register(EngineCollector(engine, model_name))
        info = Gauge(
            "failsoft_version_info",
            "1 for the version that is served: joins every other metric by model_name.",
            ["model_name", "version", "version_digest"],
            registry=self._registry,
        )
        info.labels(model_name, version_digest[:_DIGEST_CHARS], version_digest).set(1)
        self._histograms = {name: self._histogram(name) for name in _HISTOGRAMS}
        self._counters = {name: self._counter(name) for name in _COUNTERS}

    def render(self) -> bytes:
        """Return the text exposition."""
        return generate_latest(self._registry)

    def count_rejected(self, error: EngineError) -> None:
        """Count a request that never reached the engine's queue."""
        self._add("requests_rejected", _reason(error))

    def count_refused(self, reason: str) -> None:
        """Count a request that the guard turned away."""
        self._add("requests_rejected", reason)

    def count_taken(self, requests: Sequence[GenerationRequest], num_choices: int) -> None:
        """Count a request that the engine has queued, by what it asks for."""
        self._observe("request_params_max_tokens", requests[0].sampling.max_tokens)
        self._observe("request_params_n", num_choices)

    def count_waste(self) -> None:
        """Count a token that nobody wants any more."""
        self._add("waste_tokens")

    def observe_answer(self, num_tokens: Sequence[int]) -> None:
        """Count an answer whose choices have all ended, by the tokens sampled for each."""
        self._observe("request_max_num_generation_tokens", max(num_tokens))

    def observe(self, event: FinishedEvent) -> None:
        """Count a request that the engine is done with."""
        record = event.record
        self._observe("request_prompt_tokens", record.num_prompt_tokens)
        self._observe("request_generation_tokens", record.num_output_tokens)
        self._add("prompt_tokens", amount=record.num_prompt_tokens)
        self._add("generation_tokens", amount=record.num_output_tokens)
        is_answered = record.finish_reason in _ANSWERED and event.error is None
        self._observe_timing(record.timing, is_answered=is_answered)
        if is_answered:
            self._add("request_success", record.finish_reason.value)
        elif record.finish_reason is FinishReason.DEADLINE:
            self._add("requests_expired")
        elif record.finish_reason is FinishReason.ABORT and event.error is None:
            self._add("requests_aborted", _stage(record.timing))
        else:
            self._add("request_errors", _reason(event.error))

    def _observe_timing(self, timing: RequestTiming, *, is_answered: bool) -> None:
        values = {
            "time_to_first_token_seconds": timing.ttft_s,
            "request_time_per_output_token_seconds": timing.tpot_s,
            "e2e_request_latency_seconds": timing.e2e_s if is_answered else None,
            "request_queue_time_seconds": timing.queue_s,
            "request_prefill_time_seconds": timing.prefill_s,
            "request_decode_time_seconds": timing.decode_s,
            "request_inference_time_seconds": timing.inference_s,
        }
        for name, value in values.items():
            if value is not None:
                self._observe(name, value)

    def _observe(self, name: str, value: float) -> None:
        self._histograms[name].labels(self._model_name).observe(value)

    def _add(self, name: str, *labels: str, amount: float = 1) -> None:
        self._counters[name].labels(self._model_name, *labels).inc(amount)

    def _histogram(self, name: str) -> Histogram:
        text, buckets = _HISTOGRAMS[name]
        histogram = Histogram(
            f"failsoft_{name}", text, ["model_name"], buckets=buckets, registry=self._registry
        )
        histogram.labels(self._model_name)  # shown as 0 from the first scrape on
        return histogram

    def _counter(self, name: str) -> Counter:
        text, labels = _COUNTERS[name]
        counter = Counter(
            f"failsoft_{name}", text, ["model_name", *labels], registry=self._registry
        )
        if not labels:
            counter.labels(self._model_name)
        return counter


def _stage(timing: RequestTiming) -> str:
    if timing.first_scheduled_s is None:
        return "queued"
    return "prefill" if timing.first_token_s is None else "decode"


def _reason(error: EngineError | None) -> str:
    """Return a label value out of a small fixed set: never text of the request's."""
    if error is None:
        return "unknown"
    return fault_of(error).code or "invalid_request"
