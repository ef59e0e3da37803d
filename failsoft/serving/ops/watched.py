"""Whose fingerprint is to be taken: every endpoint of the settings, each process once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from failsoft.config.settings import EndpointConfig, Settings
from failsoft.errors import ConfigError
from failsoft.fallback.discovery import EngineFinder
from failsoft.fallback.fingerprint.machine import local_subject
from failsoft.fallback.fingerprint.take import Asked
from failsoft.fallback.fixed_target import fixed_target


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One endpoint that can be asked now."""

    endpoint: str
    asked: Asked
    subject: str
    """`local_subject` of a version, or the source of an endpoint elsewhere."""
    digest: str | None
    """The version that each of its answers must report; None for an endpoint elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """One endpoint that cannot be asked now."""

    endpoint: str
    why: str


def watch(
    settings: Settings, finder: EngineFinder, environ: Mapping[str, str]
) -> Iterator[Watched | Unseen]:
    """Yield every endpoint; of several that share a slot, the first.

    Args:
        settings: The endpoints.
        finder: Finds local engines.
        environ: Where API keys are.
    """
    slots: set[str] = set()
    for endpoint in settings.endpoints.values():
        if endpoint.pin is None:
            yield _elsewhere(endpoint, environ)
        elif endpoint.pin not in slots:
            slots.add(endpoint.pin)
            yield _local(endpoint.name, finder, slot=endpoint.pin)


def _elsewhere(endpoint: EndpointConfig, environ: Mapping[str, str]) -> Watched | Unseen:
    try:
        target = fixed_target(endpoint, environ=environ)
    except ConfigError as exc:
        return Unseen(endpoint=endpoint.name, why=str(exc))
    asked = Asked(url=target.url, model=target.model, authorization=target.authorization)
    source = target.version.source
    return Watched(endpoint=endpoint.name, asked=asked, subject=source, digest=None)


def _local(endpoint: str, finder: EngineFinder, *, slot: str) -> Watched | Unseen:
    engine = finder.find(slot)
    if isinstance(engine, str):
        return Unseen(endpoint=endpoint, why=engine)
    if engine.version_digest is None:
        return Unseen(endpoint=endpoint, why=f"the engine of slot {slot} has no version digest")
    return Watched(
        endpoint=endpoint,
        asked=Asked(
            url=engine.url,
            model=engine.version,
            authorization=f"Bearer {engine.token}" if engine.token else None,
            is_ours=True,
        ),
        subject=local_subject(engine.version_digest),
        digest=engine.version_digest,
    )
