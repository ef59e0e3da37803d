"""Whether the bytes of versions are still those that their digests name; reads all of them."""

from collections.abc import Iterable
from dataclasses import dataclass

from failsoft.engine.models.fetch import known_digest
from failsoft.engine.models.resolve import VersionPlan, add_command
from failsoft.engine.models.store import ModelStore
from failsoft.engine.models.verify import FileCheck, verify_model
from failsoft.engine.models.version_facts import VersionFacts
from failsoft.errors import ModelError


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionVerdict:
    """What became of one version's bytes."""

    facts: VersionFacts
    model_digest: str | None
    """None when its model is not in the store."""
    checks: tuple[FileCheck, ...]
    """Of its model and of all conversions of it; the first is that the digests of the model's
    manifest add up to its own. Empty when nothing could be read."""
    problem: str | None
    """What is wrong with it apart from bytes that changed, or None."""

    @property
    def is_good(self) -> bool | None:
        """Whether every byte is the noted one; None when there are none."""
        if self.problem is None and not self.checks:
            return None
        return self.problem is None and all(check.is_good for check in self.checks)

    @property
    def repair(self) -> str:
        """The command that fetches it or makes it good."""
        return add_command(self.facts.plan)


def verify_versions(versions: Iterable[VersionFacts], *, store: ModelStore) -> list[VersionVerdict]:
    """Read the bytes of each of *versions* again; those of one model only once."""
    read: dict[str, tuple[FileCheck, ...]] = {}
    verdicts = []
    for facts in versions:
        digest, problem = None, facts.problem
        checks: tuple[FileCheck, ...] = ()
        try:
            digest = _stored_digest(facts.plan, store)
            if digest is not None and digest not in read:
                read[digest] = tuple(verify_model(digest, store=store))
            checks = read.get(digest or "", ())
        except ModelError as exc:
            problem = str(exc)
        if any(not check.is_good for check in checks):
            problem = None  # of which the bytes are the reason
        verdicts.append(
            VersionVerdict(facts=facts, model_digest=digest, checks=checks, problem=problem)
        )
    return verdicts


def _stored_digest(plan: VersionPlan, store: ModelStore) -> str | None:
    digest = known_digest(plan.source, store=store, sha256=plan.settings.sha256)
    return digest if digest in store.digests() else None
