"""The HTTP server's settings, and the headers it shares with the ladder. Units: bytes, seconds."""

from dataclasses import dataclass, field
from ipaddress import ip_address

from failsoft.errors import ConfigError

DEADLINE_HEADER = "x-failsoft-deadline-ms"
"""A request's: milliseconds until its caller has no use for an answer."""
MAX_DEADLINE_MS = 86_400_000
"""A day: a longer one is a mistake of unit."""
PROGRESS_HEADER = "x-failsoft-progress"
"""A request's to an engine: ``on`` asks for a sign of each token whose text is held."""
VERSION_HEADER = "x-failsoft-version"
"""A reply's: the whole digest of the version that writes it."""
RUNG_HEADER = "x-failsoft-rung"
"""A front's reply's: the endpoint that answers, or ``cache``."""
ATTEMPTS_HEADER = "x-failsoft-attempts"
"""A front's reply's: attempts that were sent."""
AGE_HEADER = "x-failsoft-age-s"
"""A front's kept reply's: its age in seconds."""
STALE_HEADER = "x-failsoft-stale"
"""A front's kept reply's: ``true`` when it is older than the ladder's ``ttl_s``."""
REPLAY_HEADER = "x-failsoft-replay"
"""A front's reply's: ``true`` when an idempotency key played an earlier one back."""
FALLBACK_HEADER = "x-failsoft-fallback"
"""A request's to a front: ``off`` asks the first model rung alone."""
CACHE_HEADER = "x-failsoft-cache"
"""A request's to a front: ``off`` or ``refresh``."""
TENANT_HEADER = "x-failsoft-tenant"
"""A request's to a front without ``[keys]``: whose it is."""
IDEMPOTENCY_HEADER = "idempotency-key"
"""A request's to a front: the same key and body give the same reply."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach *host*; a name other than localhost counts as not."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """Where the server listens and whom it answers.

    Raises:
        ConfigError: A value is out of range, or anyone on the network could use the
            server without a key; the error names the key.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    """0..65535; 0 takes any free port."""
    allowed_hosts: tuple[str, ...] = ()
    """``Host`` names to answer to beside *host* and the loopback names, without port."""
    api_key: str | None = field(default=None, repr=False)
    """Bearer token that every route but ``/health`` asks for; None asks for none."""
    max_body_bytes: int = 1_000_000
    body_timeout_s: float = 30.0
    """A body that takes longer to arrive is refused: slow uploads hold memory."""
    stuck_after_s: float = 10.0
    """Without a settled step for this long while work is there, the engine is not ready."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(key="port", value=self.port, allowed="0..65535")
        if self.max_body_bytes < 1:
            raise ConfigError(key="max_body_bytes", value=self.max_body_bytes, allowed="at least 1")
        for key in ("body_timeout_s", "stuck_after_s"):
            if not getattr(self, key) > 0:
                raise ConfigError(key=key, value=getattr(self, key), allowed="above 0")
        if self.api_key == "":
            raise ConfigError(key="api_key", value="", allowed="a non-empty secret")
        if self.api_key is None and not is_loopback(self.host):
            raise ConfigError(
                key="host",
                value=self.host,
                allowed="a loopback address such as 127.0.0.1, unless --api-key-env names the "
                "environment variable that holds a key for callers",
            )
