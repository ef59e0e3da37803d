"""One OpenAI-compatible endpoint as the ladder knows it: where it is, how it has been.

Knows nothing of retries. Units: seconds, tokens. Not thread-safe: one event loop owns it.
"""

import re
import statistics
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from failsoft.call_records import AttemptOutcome as Outcome
from failsoft.config.http import VERSION_HEADER
from failsoft.config.price import TokenPrice
from failsoft.config.settings import EndpointConfig
from failsoft.fallback.breaker import Breaker
from failsoft.fallback.context_check import lacks
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
        make_breaker: Makes its breaker, and a new one once another version answers.
        clock: Monotonic seconds.
        version_name: Returns what that is called; None takes the model that the settings name.
    """

    def __init__(
        self,
        config: EndpointConfig,
        *,
        locate: Callable[[], Target | str],
        version: Callable[[], Version],
        make_breaker: Callable[[], Breaker],
        clock: Callable[[], float],
        version_name: Callable[[], str] | None = None,
    ) -> None:
        self.name = config.name
        self.config = config
        self._version_name = version_name
        self._locate = locate
        self._version = version
        self._make_breaker = make_breaker
        self._clock = clock
        self.judged: str | None = None
        """Key of the version that the standing is about; None before it was ever found."""
        self.served: tuple[str, str | None] | None = None
        self.unpriced: set[str] = set()
        """Versions that a warning was given for: once each is enough."""
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.breaker = self._make_breaker()
        self.ttft = Typical()
        self.service = Typical()
        self.context_tokens = self.config.context_tokens
        """Prompt plus output tokens it takes; learnt from it when the settings do not say."""
        self.health = RollingWindow(window_s=HEALTH_WINDOW_S, num_counts=2, clock=self._clock)

    def locate(self) -> Target | str:
        """Return where it is now, or in words why it is nowhere.

        Once another version is there, its standing begins anew: whoever rolled a bad one back
        must not wait for the breaker that the bad one opened.
        """
        target = self._locate()
        if not isinstance(target, str):
            if self.judged not in (None, target.version.key):
                self._begin_anew()
            self.judged = target.version.key
        return target

    def go_on_from(self, before: "Endpoint") -> None:
        """Take over the standing of the endpoint it was before the settings were read again.

        Nothing is taken over when it is another endpoint, or another version, under its name.
        """
        if before.version().source != self.version().source:
            return
        self.breaker, self.judged = before.breaker, before.judged
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

    @property
    def version_name(self) -> str | None:
        """What people call the version that it runs, or would run."""
        return self.config.model if self._version_name is None else self._version_name()

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
