"""What the engine itself counts, as Prometheus metrics, read when they are asked for.

What nobody measured is left out: an absent series is no 0.
"""

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from failsoft.engine.http.engine_port import EnginePort
from failsoft.records import Distribution, EngineStats, StepStats


class EngineCollector(Collector):
    """Asks the engine for its stats at each scrape.

    Args:
        engine: The engine.
        model_name: Value of the label ``model_name``.
    """

    def __init__(self, engine: EnginePort, model_name: str) -> None:
        self._engine = engine
        self._model_name = model_name

    def collect(self) -> Iterator[Metric]:
        """Yield every metric that there is a number for."""
        stats = self._engine.stats()
        for name, value, text in _gauges(stats):
            if value is None:
                continue
            gauge = GaugeMetricFamily(f"failsoft_{name}", text, labels=["model_name"])
            gauge.add_metric([self._model_name], value)
            yield gauge
        for name, value, text in _totals(stats):
            counter = CounterMetricFamily(f"failsoft_{name}", text, labels=["model_name"])
            counter.add_metric([self._model_name], value)
            yield counter
        if stats.steps is not None:
            yield from self._histograms(stats.steps)

    def describe(self) -> Iterator[Metric]:
        """Yield nothing, so that registering does not ask the engine."""
        yield from ()

    def _histograms(self, steps: StepStats) -> Iterator[Metric]:
        plain = [
            ("iteration_tokens_total", steps.tokens, "Tokens in a step."),
            ("batch_rows", steps.rows, "Requests in a step."),
            ("inter_token_latency_seconds", steps.gaps_s, "Between two tokens of a request."),
        ]
        for name, distribution, text in plain:
            family = HistogramMetricFamily(f"failsoft_{name}", text, labels=["model_name"])
            _fill(family, [self._model_name], distribution)
            yield family
        seconds = HistogramMetricFamily(
            "failsoft_step_seconds",
            "A step, by what it held: prefill, decode or both.",
            labels=["model_name", "kind"],
        )
        for kind, distribution in steps.seconds.items():
            _fill(seconds, [self._model_name, kind], distribution)
        yield seconds


def _fill(family: HistogramMetricFamily, labels: list[str], distribution: Distribution) -> None:
    """Add a distribution; Prometheus' buckets hold all that lies below them."""
    bounds = [*map(floatToGoString, distribution.bounds), "+Inf"]
    buckets = list(zip(bounds, accumulate(distribution.counts), strict=True))
    family.add_metric(labels, buckets=buckets, sum_value=distribution.total)


def _gauges(stats: EngineStats) -> list[tuple[str, float | None, str]]:
    num_used, num_cached = stats.num_blocks_used, stats.num_blocks_cached
    used_ratio = num_used / stats.num_blocks if stats.num_blocks else None
    return [
        ("engine_alive", stats.is_alive, "1 while the engine's thread runs."),
        ("engine_draining", stats.is_draining, "1 while the engine takes no more requests."),
        ("num_requests_running", stats.num_running, "Requests in the running batch."),
        ("num_requests_waiting", stats.num_waiting, "Requests in the queue."),
        ("kv_cache_usage_perc", used_ratio, "KV blocks that requests hold, of all, 0..1."),
        ("blocks_used", num_used, "KV blocks that requests hold."),
        ("blocks_cached", num_cached, "Free KV blocks that a prefix can still hit."),
        ("blocks_free", stats.num_blocks - num_used - num_cached, "KV blocks that hold nothing."),
        (
            "engine_seconds_since_progress",
            stats.seconds_since_progress,
            "Since the last settled step; absent while there is no work.",
        ),
        (
            "model_selftest_max_error",
            stats.self_test_error,
            "Largest error of the self-test at load, in standard deviations of the logits.",
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
