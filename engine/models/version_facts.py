"""What is known of a version by name, and which version a name or a digest's beginning means.

Fetches nothing. Imports torch only where ``auto`` has to be resolved for stored bytes.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from failsoft.config.versions import version_names
from failsoft.engine.models.fetch import find_model
from failsoft.engine.models.inventory import licence_of
from failsoft.engine.models.resolve import (
    VersionPlan,
    add_command,
    build_version,
    plan_version,
    version_tables,
)
from failsoft.engine.models.store import ModelStore, StoredModel
from failsoft.engine.models.version import Version
from failsoft.engine.torch_build import auto_device
from failsoft.errors import ConfigError, FailsoftError, ModelSourceError

_PREFIX = re.compile(r"[0-9a-f]{6,64}")
_SHORT_PREFIX = re.compile(r"[0-9a-f]{1,5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFacts:
    """One name of the settings file or the catalogue."""

    plan: VersionPlan
    stored: StoredModel | None
    """None when its model is not in the store, or is damaged."""
    version: Version | None
    """None without its model: only bytes give a digest."""
    problem: str | None
    """Why there is no version though its model is in the store, or None."""

    @property
    def name(self) -> str:
        """What people call it."""
        return self.plan.name

    @property
    def dtype(self) -> str:
        """What it computes in; ``auto`` where that is not resolved."""
        return self.plan.settings.dtype if self.version is None else self.version.dtype

    @property
    def licence(self) -> str | None:
        """Of the model, as the catalogue or its file says; None when neither does."""
        known = self.plan.catalogue
        return known.licence if known else licence_of(self.stored)


def version_facts(name: str, *, config_path: Path, store: ModelStore) -> VersionFacts:
    """Return what is known of the version called *name*.

    Raises:
        ConfigError: No such name, or the file is wrong.
    """
    plan = plan_version(name, config_path=config_path)
    stored, version, problem = None, None, None
    try:
        stored = find_model(plan.source, store=store, sha256=plan.settings.sha256)
        if stored is not None:
            stored.check_manifest()
            version = build_version(plan, stored, dtype=None, store=store, device=_device(plan))
    except FailsoftError as exc:
        problem = str(exc)
    return VersionFacts(plan=plan, stored=stored, version=version, problem=problem)


def _device(plan: VersionPlan) -> str:
    """Return where ``auto`` is measured: where an engine would run."""
    if plan.settings.dtype != "auto":
        return "cpu"
    return auto_device()


def all_version_facts(*, config_path: Path, store: ModelStore) -> list[VersionFacts]:
    """Return every version of the file, then the catalogue's.

    Raises:
        ConfigError: The file is wrong.
    """
    names = version_names(version_tables(config_path))
    return [version_facts(name, config_path=config_path, store=store) for name in names]


def find_version_facts(text: str, *, config_path: Path, store: ModelStore) -> VersionFacts:
    """Return the version that *text* means.

    Args:
        text: A name, or at least six digits of a version digest.
        config_path: The settings file.
        store: Where models are kept.

    Raises:
        ConfigError: It is neither, or the digits fit versions that differ.
    """
    names = version_names(version_tables(config_path))
    if text not in names and _SHORT_PREFIX.fullmatch(text):
        allowed = "no name, and a digest takes at least 6 digits; see `failsoft versions list`"
        raise ConfigError(key="version", value=text, allowed=allowed)
    if text in names or not _PREFIX.fullmatch(text):
        return version_facts(text, config_path=config_path, store=store)
    known = all_version_facts(config_path=config_path, store=store)
    found = [f for f in known if f.version is not None and f.version.digest.startswith(text)]
    digests = {facts.version.digest for facts in found if facts.version is not None}
    if len(digests) == 1:
        return found[0]
    fitting = ", ".join(facts.name for facts in found)
    allowed = f"these digits begin the digests of {fitting}; write more of them"
    if not found:
        allowed = "no name, and no stored version's digest begins so; see `failsoft versions list`"
    raise ConfigError(key="version", value=text, allowed=allowed)


def require_version(facts: VersionFacts) -> Version:
    """Return the version.

    Raises:
        ModelSourceError: Its model is not stored or is damaged; the message says what to run.
    """
    if facts.version is not None:
        return facts.version
    why = "its model is not stored" if facts.problem is None else facts.problem
    raise ModelSourceError(
        f"version {facts.name} has no digest here: {why}; run `{add_command(facts.plan)}`",
        source=str(facts.plan.source),
    )
