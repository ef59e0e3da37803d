"""What ``failsoft.toml`` says, as frozen objects. Units: seconds, days, bytes, tokens.

Knows nothing of files or pydantic (`failsoft.config.schema` reads them). Secrets
never live here, only the names of the environment variables that hold them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal
from urllib.parse import urlsplit

from failsoft.config.allowed import (
    EnvName,
    Name,
    between,
    check_fields,
    matching,
    zero_or_between,
)
from failsoft.config.price import TokenPrice
from failsoft.config.versions import VersionSettings, find_version
from failsoft.errors import ConfigError

CACHE_RUNG = "cache"
"""The rung that no endpoint serves: the reply cache."""

SLOW_SHARE = 0.8
"""A first token later than this share of its clock counts as slow, unless a ladder says when."""

Seconds = Annotated[float, between(0.001, 86_400, what="seconds")]
LongSeconds = Annotated[float, between(0, 31_536_000, what="seconds")]
Days = Annotated[float, between(0.01, 3650, what="days")]
Ratio = Annotated[float, between(0, 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Where records go, what user text is kept, and for how long.

    Raises:
        ConfigError: A value is out of range; the error names the key.
    """

    url: Annotated[
        str,
        matching(
            r"sqlite:///(?!:memory:)[^?]+|postgresql(\+psycopg)?://(?:[^:@/]*@)?[^@/]*/[^@?]+(\?(?!.*pass)[^@]*)?",
            "sqlite:///FILE or postgresql://USER@HOST:PORT/DATABASE, the password in password_env",
        ),
    ] = "sqlite:///failsoft.db"
    """A relative SQLite file lies beside the settings file that names it."""
    password_env: EnvName | None = None
    """Environment variable with PostgreSQL's password."""
    keep_text: Literal["none", "cache-only", "all"] = "cache-only"
    """User text on disk: none (and so no cached rung); replies that the cache and
    idempotency keys play back; or those and every call's request and reply."""
    reply_bytes: Annotated[int, between(65_536, 2**40, what="bytes")] = 256 * 1024**2
    """Reply text the cache holds at most; past it the replies used longest ago go."""
    reply_days: Days = 7.0
    """A cached reply is deleted at this age, used or not."""
    text_days: Days = 7.0
    """Under ``keep_text = "all"`` a call's words are deleted at this age."""
    call_days: Days = 30.0
    """Calls and attempts (no text) are deleted at this age."""
    event_days: Days = 90.0
    idempotency_hours: Annotated[float, between(24, 8760, what="hours")] = 24.0
    """How long a finished idempotency key plays its reply back."""
    queue_records: Annotated[int, between(1000, 10_000_000, what="records")] = 50_000
    """Records that wait for the writer at most; the next ones are dropped and counted."""
    busy_timeout_s: Annotated[float, between(0.1, 60, what="seconds")] = 10.0
    """How long a write waits for another process's lock."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def is_sqlite(self) -> bool:
        """Whether the store is one local file."""
        return self.url.startswith("sqlite:")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointConfig:
    """One OpenAI-compatible endpoint: a local engine that runs a pin, or a URL.

    Raises:
        ConfigError: A value is out of range, or not exactly one of *pin* and *url* is set.
    """

    name: Name
    pin: Name | None = None
    """Slot whose pinned version a local engine serves."""
    url: (
        Annotated[str, matching(r"https?://[^\s@?#]+", "http(s)://HOST/PATH, no secrets")] | None
    ) = None
    """Base URL that ends before ``/chat/completions``, usually in ``/v1``."""
    model: (
        Annotated[
            str,
            matching(
                r"(?!(.*[:@/-])?(latest|main|master|head)$)\S.{0,255}",
                "a model name that does not move (no latest or main: name the release)",
            ),
        ]
        | None
    ) = None
    """What a *url* endpoint calls the model."""
    api_key_env: EnvName | None = None
    context_tokens: Annotated[int, between(1, 2**31, what="tokens")] | None = None
    """Prompt plus output tokens it takes; None when not known: it is then asked."""
    tools: bool | None = None
    """Whether it takes tools; None when not known."""
    json_schema: bool | None = None
    """Whether it takes a JSON schema as response format; None when not known."""
    price: TokenPrice | None = None
    """Of a *url* endpoint; a pinned version carries its own."""

    def __post_init__(self) -> None:
        check_fields(self)
        if (self.pin is None) == (self.url is None):
            raise ConfigError(key="pin", value=self.pin, allowed="exactly one of pin and url")
        if (self.url is None) != (self.model is None):
            raise ConfigError(
                key="model", value=self.model, allowed="set with url and only with url"
            )
        if self.url is not None and not _has_host(self.url):
            raise ConfigError(
                key="url", value=self.url, allowed="http(s)://HOST:PORT/PATH, the port 1..65535"
            )
        if self.price is not None and self.url is None:
            raise ConfigError(
                key="price", value=self.price, allowed="set with url; a pin's version has the price"
            )


def _has_host(url: str) -> bool:
    """Return whether *url* names a host, and a port if any that there can be."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port out of range, or half an IPv6 address
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryConfig:
    """Retries on one rung: full jitter, ``sleep = random(0, min(cap_s, base_s * 2**n))``."""

    attempts: Annotated[int, between(1, 10, what="an integer")] = 3
    """Attempts on one rung at most, the first included."""
    base_s: Seconds = 0.2
    cap_s: Seconds = 5.0
    budget_ratio: Ratio = 0.1
    """Retries at most per live call, over all calls of the ladder; a small floor is free."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.cap_s < self.base_s:
            raise ConfigError(
                key="cap_s", value=self.cap_s, allowed=f"at least base_s, {self.base_s:g}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutConfig:
    """The four clocks of one attempt; the call's deadline cuts each of them."""

    connect_s: Seconds = 2.0
    first_token_s: Seconds = 10.0
    gap_s: Seconds = 5.0
    """Between two tokens, also where their text is held; a keep-alive comment resets nothing."""
    total_s: Seconds | None = None
    """None leaves it to the call's deadline."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerConfig:
    """When an endpoint is left alone, and for how long."""

    failure_ratio: Annotated[float, between(0.01, 1)] = 0.5
    min_calls: Annotated[int, between(1, 100_000, what="an integer")] = 10
    """Calls in the window below which the breaker stays closed."""
    window_s: Seconds = 30.0
    open_s: Seconds = 10.0
    """First open time; it doubles, jittered, while probes fail."""
    slow_first_token_s: Seconds | None = None
    """A first token later than this counts as a failure; None takes `SLOW_SHARE` of its clock."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """How a ladder's cached rung answers."""

    ttl_s: LongSeconds = 300.0
    """A reply is fresh for this long."""
    stale_if_error_s: LongSeconds = 86_400.0
    """For this long after *ttl_s* it may answer what no model could, marked stale (RFC 5861)."""
    match: Literal["exact", "messages"] = "exact"
    """``messages`` ignores the sampling fields."""
    sampled_first: bool = False
    """Placed first, it answers only temperature 0 unless this is set."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderConfig:
    """An ordered list of answers, one deadline over all of them.

    Raises:
        ConfigError: No rung, a rung twice, or a value out of range.
    """

    name: Name
    rungs: tuple[str, ...]
    """Endpoint names, and `CACHE_RUNG` once at most."""
    deadline_s: Seconds = 30.0
    """A call's deadline unless the call brings its own."""
    retry: RetryConfig = field(default_factory=RetryConfig)
    timeouts: TimeoutConfig = field(default_factory=TimeoutConfig)
    breaker: BreakerConfig = field(default_factory=BreakerConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.rungs or len(set(self.rungs)) != len(self.rungs):
            raise ConfigError(
                key="rungs", value=list(self.rungs), allowed="at least one rung, each named once"
            )

    @property
    def has_cache(self) -> bool:
        """Whether the reply cache is one of the rungs."""
        return CACHE_RUNG in self.rungs

    @property
    def slow_first_token_s(self) -> float:
        """Seconds after which a first token counts as slow."""
        if self.breaker.slow_first_token_s is not None:
            return self.breaker.slow_first_token_s
        return SLOW_SHARE * self.timeouts.first_token_s


@dataclass(frozen=True, slots=True, kw_only=True)
class FingerprintConfig:
    """How often `failsoft up` looks whether each endpoint's weights are what they were."""

    every_s: Annotated[float, zero_or_between(10, 86_400, what="seconds")] = 300.0
    """0 never looks."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The whole file, references resolved: every rung has its endpoint, every pin its version."""

    store: StoreConfig = field(default_factory=StoreConfig)
    versions: Mapping[str, VersionSettings] = field(default_factory=dict)
    """The file's own versions by name; a pin may also name a catalogue model."""
    pins: Mapping[str, str] = field(default_factory=dict)
    """Slot to version name: the first pins; a rollback moves them in the store."""
    endpoints: Mapping[str, EndpointConfig] = field(default_factory=dict)
    ladders: Mapping[str, LadderConfig] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    """Caller name (the tenant) to the environment variable that holds its key."""
    fingerprint: FingerprintConfig = field(default_factory=FingerprintConfig)

    def __post_init__(self) -> None:
        check_fields(self)

    def serves_cache(self, ladder: LadderConfig) -> bool:
        """Whether *ladder*'s cached rung can answer: no text kept, no cached reply."""
        return ladder.has_cache and self.store.keep_text != "none"

    def price_of(self, endpoint: EndpointConfig) -> TokenPrice | None:
        """Return the price of what *endpoint* serves by the file's pins; None when it has none."""
        if endpoint.pin is None:
            return endpoint.price
        return self.version_price(self.pins[endpoint.pin])

    def version_price(self, name: str) -> TokenPrice | None:
        """Return the price of the version called *name*; None when it has none."""
        version = find_version(name, self.versions)
        return None if version is None else version.price
