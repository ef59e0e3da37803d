"""One OpenAI-compatible endpoint as the ladder knows it: where it is, how it has been.

Knows nothing of retries. Units: seconds, tokens. Not thread-safe: one event loop owns it.
"""

import hashlib
import statistics
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from failsoft.call_records import AttemptOutcome as Outcome
from failsoft.config.price import Price
from failsoft.config.settings import EndpointConfig, Settings
from failsoft.fallback.breaker import Breaker
from failsoft.fallback.cache_key import canonical_json
from failsoft.fallback.context_check import lacks
from failsoft.fallback.discovery import EngineFinder, RunningEngine
from failsoft.fallback.rolling_window import RollingWindow

NUM_SAMPLES = 32
"""Latencies kept for the median: recent enough to follow a change, enough to ignore one."""
HEALTH_WINDOW_S = 30.0
HEALTH_MIN_CALLS = 10
MIN_ANSWERED_RATIO = 0.25
"""Below this share of answers a step down to it draws on the retry budget."""

_ASKED, _ANSWERED = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What writes an endpoint's replies."""

    key: str
    """Stands for it in a reply's key: the same text for the same answers."""
    digest: str | None
    price: Price | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to send a request now, and who will answer it."""

    url: str
    """Base URL without a slash at its end."""
    model: str
    version: Version
    authorization: str | None = field(default=None, repr=False)
    context_tokens: int | None = None
    """As its supervisor published it; None when not known."""


class Typical:
    """The median of the last durations."""

    __slots__ = ("_samples", "median_s")

    def __init__(self) -> None:
        self._samples: deque[float] = deque(maxlen=NUM_SAMPLES)
        self.median_s: float | None = None

    def add(self, seconds: float) -> None:
        """Take one duration in."""
        self._samples.append(seconds)
        self.median_s = statistics.median(self._samples)


class Endpoint:
    """One endpoint's standing.

    Args:
        config: What the settings say of it.
        locate: Returns where it is now, or in words why it is nowhere.
        version: Returns what it runs, or would run.
        breaker: Its breaker.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        config: EndpointConfig,
        *,
        locate: Callable[[], Target | str],
        version: Callable[[], Version],
        breaker: Breaker,
        clock: Callable[[], float],
    ) -> None:
        self.name = config.name
        self.locate = locate
        self.version = version
        self.breaker = breaker
        self.ttft = Typical()
        self.service = Typical()
        self.context_tokens = config.context_tokens
        """Prompt plus output tokens it takes; learnt from it when the settings do not say."""
        self.unpriced: set[str] = set()
        """Versions that a warning was given for: once each is enough."""
        self._config = config
        self._health = RollingWindow(window_s=HEALTH_WINDOW_S, num_counts=2, clock=clock)

    def lacks(self, body: Mapping[str, Any]) -> Outcome | None:
        """Return why it cannot take *body*; None when it may."""
        return lacks(
            body,
            context_tokens=self.context_tokens,
            tools=self._config.tools,
            json_schema=self._config.json_schema,
        )

    @property
    def has_own_context(self) -> bool:
        """Whether its settings fix its context."""
        return self._config.context_tokens is not None

    def on_end(self, *, is_answered: bool) -> None:
        """Count one attempt that was sent and told something."""
        self._health.add(_ASKED)
        if is_answered:
            self._health.add(_ANSWERED)

    def earns_step_down(self) -> bool:
        """Return whether it answers often enough that stepping down to it is free.

        Requests are let through up to 4 times what is accepted, after the client-side
        throttle of the SRE book (ch. 21), but only for steps down: live traffic's own first
        attempt is the breaker's business.
        """
        asked = self._health.total(_ASKED)
        if asked < HEALTH_MIN_CALLS:
            return True
        return self._health.total(_ANSWERED) >= MIN_ANSWERED_RATIO * asked


def manifest_key(manifest: Mapping[str, Any]) -> str:
    """Return a hash over a version's manifest as written, without its price, in hex."""
    kept = {k: v for k, v in manifest.items() if k != "price"}
    return hashlib.sha256(canonical_json(kept).encode()).hexdigest()


class EngineLocator:
    """Finds the local engine of a pinned slot and says which version it runs.

    Args:
        settings: Pins, versions and prices.
        slot: The slot.
        finder: Reads what the supervisor published.
    """

    def __init__(self, settings: Settings, *, slot: str, finder: EngineFinder) -> None:
        self._settings = settings
        self._slot = slot
        self._finder = finder
        self._keys = {name: manifest_key(table) for name, table in settings.versions.items()}

    def locate(self) -> Target | str:
        """Return where it listens, or in words why it does not."""
        engine = self._finder.find(self._slot)
        if isinstance(engine, str):
            return engine
        return Target(
            url=engine.url.rstrip("/"),
            model=engine.version,
            version=self._version_of(engine),
            authorization=f"Bearer {engine.token}" if engine.token else None,
            context_tokens=engine.max_model_len,
        )

    def version(self) -> Version:
        """Return what it runs; what is pinned while it does not run."""
        engine = self._finder.find(self._slot)
        if not isinstance(engine, str):
            return self._version_of(engine)
        pinned = self._settings.pins[self._slot]
        return Version(
            key=self._keys.get(pinned, pinned),
            digest=None,
            price=self._settings.prices.get(pinned),
        )

    def _version_of(self, engine: RunningEngine) -> Version:
        return Version(
            key=self._keys.get(engine.version, engine.version_digest or engine.version),
            digest=engine.version_digest or self._keys.get(engine.version),
            price=self._settings.prices.get(engine.version),
        )
