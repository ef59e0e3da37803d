"""How one front listens and stops. Units: bytes, seconds."""

from dataclasses import dataclass
from typing import Annotated

from failsoft.config.allowed import between, check_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontConfig:
    """What a front's command line says beside the settings file.

    Raises:
        ConfigError: A value is out of range; the error names the key.
    """

    allowed_hosts: tuple[str, ...] = ()
    """``Host`` names to answer to beside the socket's own and the loopback names."""
    max_body_bytes: Annotated[int, between(1, 2**30, what="bytes")] = 1_000_000
    body_timeout_s: Annotated[float, between(0.1, 3600, what="seconds")] = 30.0
    """How long a request's body may take to arrive."""
    drain_s: Annotated[float, between(0, 3600, what="seconds")] = 30.0
    """How long open calls may run on after the first signal."""

    def __post_init__(self) -> None:
        check_fields(self)
