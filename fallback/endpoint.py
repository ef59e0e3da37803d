"""One OpenAI-compatible endpoint as the ladder knows it: where it is, how it has been.

Knows nothing of retries. Units: seconds, tokens. Not thread-safe: one event loop owns it.
"""

import hashlib
import re
import statistics
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from failsoft.call_records import AttemptOutcome as Outcome
from failsoft.config.http import VERSION_HEADER
from failsoft.config.price import TokenPrice
from failsoft.config.settings import EndpointConfig, Settings
from failsoft.config.versions import VersionSettings, find_version
from failsoft.fallback.breaker import Breaker
from failsoft.fallback.cache_key import canonical_json
from failsoft.fallback.context_check import lacks
from failsoft.fallback.discovery import EngineFinder
from failsoft.fallback.rolling_window import RollingWindow

NUM_SAMPLES = 32
"""Latencies kept for the median: recent enough to follow a change, enough to ignore one."""
HEALTH_WINDOW_S = 30.0
HEALTH_MIN_CALLS = 10
MIN_ANSWERED_RATIO = 0.25
"""Below this share of answers a step down to it draws on the retry budget."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_ASKED, _ANSWERED = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What writes an endpoint's replies."""

    source: str
    """Hash of what the settings say of it: known before it ever answered."""
    digest: str | None
    """Of its manifest, as it reports it; None while not known, and for a foreign endpoint."""
    price: TokenPrice | None

    @property
    def key(self) -> str:
        """Stands for it in a reply's key: the same text for the same answers."""
        return self.digest or self.source

    def served_as(self, digest: str | None) -> "Version":
        """Return it with the digest that its own reply reported, if one did."""
        return self if digest is None else replace(self, digest=digest)


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
    salt_secret: str | None = field(default=None, repr=False)
    """Keys the salt of a local engine's prefix cache; None for an endpoint that gets none."""


def reported_digest(headers: Mapping[str, str]) -> str | None:
    """Return the digest of the version that writes a reply, as our engine's headers say.

    Taken from each reply: an engine may be restarted with another version under the same
    URL and name at any moment. None for a foreign endpoint.
    """
    said = headers.get(VERSION_HEADER, "")
    return said if _DIGEST.fullmatch(said) else None


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
        pinned: Name of the version pinned to its slot; None for an endpoint elsewhere.
    """

    def __init__(
        self,
        config: EndpointConfig,
        *,
        locate: Callable[[], Target | str],
        version: Callable[[], Version],
        breaker: Breaker,
        clock: Callable[[], float],
        pinned: str | None = None,
    ) -> None:
        self.name = config.name
        self.pinned = pinned
        self.locate = locate
        self._version = version
        self.served: tuple[str, str | None] | None = None
        self.breaker = breaker
        self.ttft = Typical()
        self.service = Typical()
        self.context_tokens = config.context_tokens
        """Prompt plus output tokens it takes; learnt from it when the settings do not say."""
        self.unpriced: set[str] = set()
        """Versions that a warning was given for: once each is enough."""
        self.config = config
        self.health = RollingWindow(window_s=HEALTH_WINDOW_S, num_counts=2, clock=clock)

    def go_on_from(self, before: "Endpoint") -> None:
        """Take over the standing of the endpoint it was before the settings were read again.

        Nothing is taken over when it is another endpoint, or another version, under its name.
        """
        if before.version().source != self.version().source:
            return
        self.breaker = before.breaker
        self.ttft, self.service = before.ttft, before.service
        self.health, self.served = before.health, before.served
        if not self.has_own_context:
            self.context_tokens = before.context_tokens

    def lacks(self, body: Mapping[str, Any]) -> Outcome | None:
        """Return why it cannot take *body*; None when it may."""
        return lacks(
            body,
            context_tokens=self.context_tokens,
            tools=self.config.tools,
            json_schema=self.config.json_schema,
        )

    def version(self) -> Version:
        """Return what it runs, or would run, with the digest it last reported of itself."""
        version = self._version()
        if version.digest is None and self.served and self.served[0] == version.source:
            return version.served_as(self.served[1])
        return version

    def on_served(self, version: Version) -> None:
        """Take in what wrote a reply."""
        self.served = (version.source, version.digest)

    @property
    def has_own_context(self) -> bool:
        """Whether its settings fix its context."""
        return self.config.context_tokens is not None

    def on_end(self, *, is_answered: bool) -> None:
        """Count one attempt that was sent and told something."""
        self.health.add(_ASKED)
        if is_answered:
            self.health.add(_ANSWERED)

    def earns_step_down(self) -> bool:
        """Return whether it answers often enough that stepping down to it is free.

        Requests are let through up to 4 times what is accepted, after the client-side
        throttle of the SRE book (ch. 21), but only for steps down: live traffic's own first
        attempt is the breaker's business.
        """
        asked = self.health.total(_ASKED)
        if asked < HEALTH_MIN_CALLS:
            return True
        return self.health.total(_ANSWERED) >= MIN_ANSWERED_RATIO * asked


def version_source(name: str, version: VersionSettings | None) -> str:
    """Return a hash over what the settings say of a version, its price apart, in hex.

    Args:
        name: Its name; counts only when the settings do not know it.
        version: What they say; None when an engine runs something they do not name.
    """
    said: object = name
    if version is not None:
        # Only what is set: a key that a later failsoft adds must not change old hashes.
        said = {k: v for k, v in asdict(version).items() if k != "price" and v not in (None, ())}
    return hashlib.sha256(canonical_json(said).encode()).hexdigest()


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
        self._versions: dict[str, Version] = {}

    def locate(self) -> Target | str:
        """Return where it listens, or in words why it does not."""
        engine = self._finder.find(self._slot)
        if isinstance(engine, str):
            return engine
        return Target(
            url=engine.url.rstrip("/"),
            model=engine.version,
            version=self._named(engine.version).served_as(engine.version_digest),
            authorization=f"Bearer {engine.token}" if engine.token else None,
            context_tokens=engine.max_model_len,
            salt_secret=engine.token or "",
        )

    def version(self) -> Version:
        """Return what it runs; what is pinned while it does not run."""
        engine = self._finder.find(self._slot)
        if isinstance(engine, str):
            return self._named(self._settings.pins[self._slot])
        return self._named(engine.version).served_as(engine.version_digest)

    def _named(self, name: str) -> Version:
        if name not in self._versions:
            version = find_version(name, self._settings.versions)
            self._versions[name] = Version(
                source=version_source(name, version),
                digest=None,
                price=None if version is None else version.price,
            )
        return self._versions[name]
