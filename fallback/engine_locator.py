"""Where a pinned slot's local engine is, and which version it runs or would run.

While an engine runs, what it published says so; while it does not, the pin does: the store's
where a move put it, else the settings file's. Not thread-safe: one event loop owns it.
"""

import hashlib
from dataclasses import asdict

from failsoft.config.settings import Settings
from failsoft.config.versions import VersionSettings, find_version
from failsoft.fallback.cache_key import canonical_json
from failsoft.fallback.discovery import EngineFinder, RunningEngine
from failsoft.fallback.endpoint import Target, Version
from failsoft.fallback.pins.pin_book import PinBook
from failsoft.fallback.pins.pinned import settings_of
from failsoft.pin_records import PinnedVersion


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
        settings: First pins, versions and prices.
        slot: The slot.
        finder: Reads what the supervisor published.
        book: What moves pinned since.
    """

    def __init__(
        self, settings: Settings, *, slot: str, finder: EngineFinder, book: PinBook
    ) -> None:
        self._settings = settings
        self._slot = slot
        self._finder = finder
        self._book = book
        self._versions: dict[str, Version] = {}
        self._pinned: dict[PinnedVersion, Version] = {}

    def locate(self) -> Target | str:
        """Return where it listens, or in words why it does not."""
        engine = self._finder.find(self._slot)
        if isinstance(engine, str):
            return engine
        return Target(
            url=engine.url.rstrip("/"),
            model=engine.version,
            version=self._running(engine),
            authorization=f"Bearer {engine.token}" if engine.token else None,
            context_tokens=engine.max_model_len,
            salt_secret=engine.token or "",
        )

    def version(self) -> Version:
        """Return what it runs; what is pinned while it does not run."""
        engine = self._finder.find(self._slot)
        if not isinstance(engine, str):
            return self._running(engine)
        moved = self._book.moved(self._slot)
        if moved is None:
            return self._named(self._settings.pins[self._slot])
        return self._kept(moved)

    def name(self) -> str:
        """Return what the version is called that it runs; what is pinned while it does not run."""
        engine, moved = self._finder.find(self._slot), self._book.moved(self._slot)
        if not isinstance(engine, str) and not _is_of(engine, moved):
            return engine.version
        return self._settings.pins[self._slot] if moved is None else moved.name

    def _running(self, engine: RunningEngine) -> Version:
        """Return what *engine* says it runs.

        A pin's own table comes first: the settings may mean another version by its name.
        """
        moved = self._book.moved(self._slot)
        if moved is not None and _is_of(engine, moved):
            return self._kept(moved)
        return self._named(engine.version).served_as(engine.version_digest)

    def _named(self, name: str) -> Version:
        if name not in self._versions:
            version = find_version(name, self._settings.versions)
            self._versions[name] = _version(name, version)
        return self._versions[name]

    def _kept(self, moved: PinnedVersion) -> Version:
        """Return what a pin keeps: the settings need not know it any more."""
        if moved not in self._pinned:
            version = _version(moved.name, settings_of(moved)).served_as(moved.digest)
            self._pinned[moved] = version
        return self._pinned[moved]


def _is_of(engine: RunningEngine, moved: PinnedVersion | None) -> bool:
    return moved is not None and moved.digest == engine.version_digest


def _version(name: str, version: VersionSettings | None) -> Version:
    return Version(
        source=version_source(name, version),
        digest=None,
        price=None if version is None else version.price,
    )
