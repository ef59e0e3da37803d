"""Prometheus metrics of one front, in a registry of its own.

Calls and attempts are counted from their records; what the ladders, their breakers and
the store count themselves is read when Prometheus asks. The label ``version`` is the head
of the digest that wrote the reply, empty where none did or none is known. No label holds a
tenant or a user's text. Durations in seconds.
"""

from collections.abc import Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from failsoft.call_records import AttemptRecord, CallOutcome, CallRecord
from failsoft.config.settings import CACHE_RUNG
from failsoft.fallback.breaker import BreakerState
from failsoft.fallback.ladder import Ladder

_Child = TypeVar("_Child", Counter, Histogram)
VERSION_CHARS = 12
MAX_VERSIONS = 64
"""Versions that have a label of their own: endpoints elsewhere may report whatever they like."""
OTHER_VERSION = "other"
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160)


class Standing(Protocol):
    """What is read when Prometheus asks."""

    @property
    def ladders(self) -> Mapping[str, Ladder]:
        """The ladders by name."""

    @property
    def budget_refused(self) -> Mapping[str, int]:
        """Extra calls that a ladder's budget refused, since the front began."""

    @property
    def num_open_calls(self) -> int:
        """Calls under way."""

    @property
    def dropped_records(self) -> Mapping[str, int]:
        """Records that the store did not keep, by kind."""

    @property
    def pins_unlike_file(self) -> Mapping[str, bool]:
        """Whether a move pinned a slot to something else than the settings file says, by slot."""


class _Family(Generic[_Child]):
    """A metric's children by their labels; looking one up costs less than the library's way."""

    def __init__(self, metric: _Child) -> None:
        self._metric: _Child = metric
        self._children: dict[tuple[str, ...], _Child] = {}

    def of(self, *labels: str) -> _Child:
        """Return the child with *labels*, whose values are of a small set."""
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = self._metric.labels(*labels)
        return child


class FrontMetrics:
    """Counts what becomes of calls."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._versions: dict[str, str] = {}
        self._calls = self._counter(
            "calls", "Calls, by how they ended.", "ladder", "outcome", "version"
        )
        self._replies = self._counter(
            "replies", "Whole replies, by the rung that gave them.", "ladder", "rung", "version"
        )
        self._attempts = self._counter(
            "attempts",
            "Ledger rows: attempts, and rungs passed over.",
            "ladder",
            "rung",
            "outcome",
            "version",
        )
        self._hits = self._counter(
            "reply_cache_hits",
            "Calls that a kept reply answered.",
            "ladder",
            "freshness",
            "version",
        )
        self._refused = self._counter(
            "requests_refused", "Requests turned away before any ladder was asked.", "reason"
        )
        self._duration = self._histogram("call_duration", "A call from its start to its end.")
        self._ttft = self._histogram(
            "time_to_first_token", "A streamed call from its start to its first content."
        )

    def read(self, standing: Standing) -> None:
        """Read *standing* too from now on; called once."""
        self._registry.register(_StandingCollector(standing))

    def render(self) -> bytes:
        """Return the text exposition."""
        return generate_latest(self._registry)

    def count_refused(self, reason: str) -> None:
        """Count a request that no ladder was asked for; *reason* is a word of a fixed set."""
        self._refused.of(reason).inc()

    def count_call(self, record: CallRecord) -> None:
        """Count a call that ended."""
        ladder, version = record.ladder, self._version(record.version_digest)
        self._calls.of(ladder, record.outcome.value, version).inc()
        self._duration.of(ladder, version).observe(record.e2e_s)
        if record.is_stream and record.ttft_s is not None:
            self._ttft.of(ladder, version).observe(record.ttft_s)
        if record.outcome is CallOutcome.OK and record.served_endpoint is not None:
            self._replies.of(ladder, record.served_endpoint, version).inc()
            if record.served_endpoint == CACHE_RUNG:
                freshness = "stale" if record.is_stale else "fresh"
                self._hits.of(ladder, freshness, version).inc()

    def count_attempt(self, ladder: str, record: AttemptRecord) -> None:
        """Count a ledger row."""
        version = self._version(record.version_digest)
        self._attempts.of(ladder, record.endpoint, record.outcome.value, version).inc()

    def _version(self, digest: str | None) -> str:
        """Return *digest*'s label."""
        if digest is None:
            return ""
        if digest not in self._versions:
            if len(self._versions) >= MAX_VERSIONS:
                return OTHER_VERSION
            self._versions[digest] = digest[:VERSION_CHARS]
        return self._versions[digest]

    def _counter(self, name: str, text: str, *labels: str) -> _Family[Counter]:
        return _Family(Counter(f"failsoft_{name}", text, labels, registry=self._registry))

    def _histogram(self, name: str, text: str) -> _Family[Histogram]:
        name = f"failsoft_{name}_seconds"
        labels = ["ladder", "version"]
        histogram = Histogram(name, text, labels, buckets=_BUCKETS, registry=self._registry)
        return _Family(histogram)


class _StandingCollector(Collector):
    """Reads what others count."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing

    def collect(self) -> Iterator[Metric]:
        standing = self._standing
        calls = GaugeMetricFamily("failsoft_open_calls", "Calls under way.")
        calls.add_metric([], standing.num_open_calls)
        yield calls
        yield _counts(
            "retry_budget_refused",
            "Extra upstream calls that the retry budget refused.",
            "ladder",
            standing.budget_refused,
        )
        yield _counts(
            "records_dropped",
            "Records that the store did not keep.",
            "kind",
            standing.dropped_records,
        )
        yield _breakers(standing.ladders)
        yield _rungs(standing.ladders)
        yield _pins(standing.pins_unlike_file)

    def describe(self) -> Iterator[Metric]:
        """Yield nothing, so that registering asks nobody."""
        yield from ()


def _counts(name: str, text: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"failsoft_{name}", text, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family


def _breakers(ladders: Mapping[str, Ladder]) -> Metric:
    family = GaugeMetricFamily(
        "failsoft_breaker_state",
        "1 for the state that a rung's breaker is in, 0 for the others.",
        labels=["ladder", "endpoint", "state"],
    )
    for name, ladder in ladders.items():
        for rung in ladder.models:
            for state in BreakerState:
                is_in = rung.endpoint.breaker.state is state
                family.add_metric([name, rung.endpoint.name, state.value], float(is_in))
    return family


def _rungs(ladders: Mapping[str, Ladder]) -> Metric:
    labels = ["ladder", "endpoint", "slot", "version_name", "version", "version_digest"]
    family = GaugeMetricFamily(
        "failsoft_rung_info",
        "1 for the version that a rung runs, or would run: joins what has no version of its own.",
        labels=labels,
    )
    for name, ladder in ladders.items():
        for rung in ladder.models:
            endpoint = rung.endpoint
            digest = endpoint.version().digest or ""
            slot, called = endpoint.config.pin or "", endpoint.version_name or ""
            family.add_metric(
                [name, endpoint.name, slot, called, digest[:VERSION_CHARS], digest], 1
            )
    return family


def _pins(unlike_file: Mapping[str, bool]) -> Metric:
    family = GaugeMetricFamily(
        "failsoft_pin_differs_from_file",
        "1 where a move pinned a slot to something else than the settings file says, else 0.",
        labels=["slot"],
    )
    for slot, differs in unlike_file.items():
        family.add_metric([slot], float(differs))
    return family
