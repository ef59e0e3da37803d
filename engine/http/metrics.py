"""Prometheus metrics of one server, in a registry of its own.

Names are vLLM's with the prefix ``failsoft_``, so its dashboards port by prefix.
Durations of a request are observed when it ends, from its record. End-to-end
time counts answered requests only: one that its caller dropped says nothing
about how fast answers are. What the engine counts is read at scrape time.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from failsoft.engine.http.engine_port import EnginePort
from failsoft.engine.http.errors import fault_of
from failsoft.engine.request import FinishedEvent
from failsoft.errors import EngineError
from failsoft.records import EngineStats, FinishReason, RequestTiming

_LATENCY_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)
_TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 5)

_ANSWERED = (FinishReason.STOP, FinishReason.LENGTH)

_HISTOGRAMS = {
    "time_to_first_token_seconds": "Arrival to the first token, the queue included.",
    "request_time_per_output_token_seconds": "Mean gap between a request's tokens after the first.",
    "e2e_request_latency_seconds": "Arrival to the end of an answered request.",
    "request_queue_time_seconds": "Arrival to the first step that held the request.",
    "request_prefill_time_seconds": "First step that held the request to its first token.",
    "request_decode_time_seconds": "First token to the last.",
}

_COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "prompt_tokens": ("Prompt tokens of ended requests.", ()),
    "generation_tokens": ("Tokens sampled for ended requests.", ()),
    "request_success": ("Answered requests.", ("finished_reason",)),
    "requests_rejected": ("Requests refused before the engine took them.", ("reason",)),
    "requests_aborted": ("Requests whose caller left, by how far they were.", ("stage",)),
    "requests_expired": ("Requests dropped at their deadline.", ()),
    "request_errors": ("Requests that the engine failed.", ("kind",)),
}


class ServerMetrics:
    """Counts what happens to requests. Call on the event loop only.

    Args:
        engine: Asked for its stats at each scrape.
        model_name: Value of the label ``model_name``.
    """

    def __init__(self, engine: EnginePort, model_name: str) -> None:
        self._model_name = model_name
        self._registry = CollectorRegistry()
        self._registry.register(_EngineCollector(engine, model_name))
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

    def observe(self, event: FinishedEvent) -> None:
        """Count a request that the engine is done with."""
        record = event.record
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
        }
        for name, value in values.items():
            if value is not None:
                self._histograms[name].labels(self._model_name).observe(value)

    def _add(self, name: str, *labels: str, amount: float = 1) -> None:
        self._counters[name].labels(self._model_name, *labels).inc(amount)

    def _histogram(self, name: str) -> Histogram:
        per_token = name == "request_time_per_output_token_seconds"
        histogram = Histogram(
            f"failsoft_{name}",
            _HISTOGRAMS[name],
            ["model_name"],
            buckets=_TOKEN_BUCKETS if per_token else _LATENCY_BUCKETS,
            registry=self._registry,
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


class _EngineCollector(Collector):
    """Reads the engine's own numbers when Prometheus asks."""

    def __init__(self, engine: EnginePort, model_name: str) -> None:
        self._engine = engine
        self._model_name = model_name

    def collect(self) -> Iterator[Metric]:
        stats = self._engine.stats()
        for name, value, text in _gauges(stats):
            gauge = GaugeMetricFamily(f"failsoft_{name}", text, labels=["model_name"])
            gauge.add_metric([self._model_name], value)
            yield gauge
        for name, value, text in _totals(stats):
            counter = CounterMetricFamily(f"failsoft_{name}", text, labels=["model_name"])
            counter.add_metric([self._model_name], value)
            yield counter

    def describe(self) -> Iterator[Metric]:
        """Yield nothing, so that registering does not ask the engine."""
        yield from ()


def _gauges(stats: EngineStats) -> list[tuple[str, float, str]]:
    used_ratio = stats.num_blocks_used / stats.num_blocks if stats.num_blocks else 0.0
    return [
        ("engine_alive", stats.is_alive, "1 while the engine's thread runs."),
        ("engine_draining", stats.is_draining, "1 while the engine takes no more requests."),
        ("num_requests_running", stats.num_running, "Requests in the running batch."),
        ("num_requests_waiting", stats.num_waiting, "Requests in the queue."),
        ("kv_cache_usage_ratio", used_ratio, "KV blocks that requests hold, of all, 0..1."),
        ("kv_blocks_cached", stats.num_blocks_cached, "Free KV blocks a prefix can still hit."),
        (
            "engine_seconds_since_progress",
            stats.seconds_since_progress or 0.0,
            "Since the last settled step while work is there; 0 when idle.",
        ),
    ]


def _totals(stats: EngineStats) -> list[tuple[str, float, str]]:
    return [
        ("engine_steps", stats.num_steps, "Steps."),
        ("num_preemptions", stats.preemptions_total, "Requests put back for lack of KV blocks."),
        ("prefix_cache_queries", stats.prefix_queried_tokens_total, "Prompt tokens looked up."),
        ("prefix_cache_hits", stats.prefix_hit_tokens_total, "Prompt tokens found computed."),
        ("forward_errors", stats.forward_errors_total, "Forwards that failed."),
    ]
