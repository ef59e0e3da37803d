"""What can be served here: names of the config file and the catalogue, and what is stored.

Fetches nothing and loads no torch.
"""

import re
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path

from failsoft.config.catalogue import CATALOGUE
from failsoft.config.sources import ModelSource, parse_source
from failsoft.config.versions import VersionSettings, parse_versions, version_names
from failsoft.engine.models.convert import CONVERTER
from failsoft.engine.models.fetch import find_model
from failsoft.engine.models.resolve import (
    CONFIG_NAME,
    VersionPlan,
    build_version,
    plan_version,
    version_tables,
)
from failsoft.engine.models.store import ModelStore, StoredModel
from failsoft.errors import ConfigError, ModelError, ModelSourceError

_PREFIX = re.compile(r"[0-9a-f]{6,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryItem:
    """One name, or one stored model without a name."""

    name: str | None
    sources: tuple[str, ...]
    licence: str | None
    size_bytes: int | None
    """As stored, or as the catalogue says; None when not known before it is fetched."""
    digest: str | None
    """None when it is not in the store."""
    problem: str | None
    """What is wrong with the stored files, or None."""
    conversions: tuple[str, ...]
    """Dtypes it was converted to."""


def inventory(store: ModelStore) -> list[InventoryItem]:
    """Return every known name, then stored models that no name leads to."""
    items = [_named(name, store) for name in known_names()]
    named = {item.digest for item in items}
    return items + [_stored(digest, store) for digest in store.digests() if digest not in named]


def known_names() -> list[str]:
    """Return the versions of the working folder's config file, then the catalogue's models."""
    return version_names(version_tables(Path(CONFIG_NAME)))


def find_digest(text: str, *, store: ModelStore) -> str:
    """Return the digest of the stored model that *text* means.

    Args:
        text: A name, a source line, or at least six digits of a stored digest.
        store: Where to look.

    Raises:
        ConfigError: It is none of these.
        ModelSourceError: It is not stored, or the digits fit several models.
    """
    if ":" in text:
        found = _find(parse_source(text, base=Path.cwd()), store=store)
    elif text not in known_names() and _PREFIX.fullmatch(text):
        found = _by_prefix(text, store)
    else:
        found = find_name(text, store=store)
    if found is None:
        raise ModelSourceError(
            f"{text} is not in {store.root}; fetch it with `failsoft models add {text}`",
            source=text,
        )
    return found


def find_name(name: str, *, store: ModelStore, config_path: Path | None = None) -> str | None:
    """Return the digest that the version called *name* is stored under, or None.

    Raises:
        ConfigError: No such name, or a setting is wrong.
    """
    plan = plan_version(name, config_path=config_path)
    return find_settings(plan.settings, base=plan.base, store=store)


def find_settings(settings: VersionSettings, *, base: Path, store: ModelStore) -> str | None:
    """Return the digest that a version's model is stored under, or None.

    Args:
        settings: The version's.
        base: Folder that a relative ``file:`` path starts from.
        store: Where to look.

    Raises:
        ModelSourceError: Its source is malformed or floats.
    """
    source = parse_source(settings.source, base=base)
    pinned = settings.sha256
    return _find(source, store=store) or (pinned if pinned in store.digests() else None)


def names_of(digest: str, *, store: ModelStore) -> list[str]:
    """Return the names, of the config file and the catalogue, that *digest* is stored for."""
    return [name for name in known_names() if find_name(name, store=store) == digest]


def add_command(digest: str, *, store: ModelStore) -> str:
    """Return the command that repairs what is stored under *digest*, by its best handle."""
    handles = [*names_of(digest, store=store), *store.sources_of(digest)]
    if not handles:  # nothing says where it came from
        return f"failsoft models remove {digest[:12]}"
    return f"failsoft models add {shlex.quote(handles[0])}"


def plan_text(text: str, *, sha256: str | None = None) -> VersionPlan:
    """Return the plan of the version that *text* names; of a plain one for a source line.

    Raises:
        ConfigError: No such name, or *sha256* is given for a name that has its own.
        ModelSourceError: The source line is malformed or floats.
    """
    if ":" in text:
        source = parse_source(text, base=Path.cwd())
        settings = parse_versions({"versions": {"source": _table(text, sha256)}})["source"]
        return VersionPlan(
            name=text, source=source, settings=settings, base=Path.cwd(), catalogue=None
        )
    plan = plan_version(text)
    if sha256 not in (None, plan.settings.sha256):
        raise ConfigError(
            key="sha256", value=sha256, allowed=f"{text} has its own, {plan.settings.sha256}"
        )
    return plan


def _table(source: str, sha256: str | None) -> dict[str, str]:
    return {"source": source} | ({} if sha256 is None else {"sha256": sha256})


def describe(text: str, *, store: ModelStore, dtype: str | None = None) -> dict[str, object]:
    """Return what is known of one stored model, and the version it makes, as JSON values.

    Raises:
        ConfigError: No such name.
        ModelSourceError: It is not stored.
        ModelFileError: Its files are damaged.
    """
    digest = find_digest(text, store=store)
    stored = store.model(digest)
    assert stored is not None, "find_digest looked it up"
    plan = _plan_of(text, digest, store)
    version = build_version(plan, stored, dtype=dtype, store=store)
    known = plan.catalogue
    price = version.price
    return {
        "name": plan.name,
        "version_digest": version.digest,
        "manifest": version.to_manifest(),
        "model_digest": digest,
        "licence": (known.licence if known else licence_of(stored)) or "not stated",
        "licence_url": known.licence_url if known else None,
        "sources": store.sources_of(digest),
        "files": [file._asdict() for file in stored.files],
        "size_bytes": stored.size_bytes,
        "added_at": stored.added_at,
        "conversions": list(conversion_dtypes(digest, store=store)),
        "price": None if price is None else asdict(price),
    }


def _plan_of(text: str, digest: str, store: ModelStore) -> VersionPlan:
    if ":" in text or text in known_names():
        return plan_text(text)
    sources = store.sources_of(digest)
    if not sources:
        raise ModelSourceError(f"no source of {digest} is noted; add it again", source=text)
    return plan_text(sources[0])


def _find(source: ModelSource, *, store: ModelStore) -> str | None:
    digest = store.source(str(source)).get("digest")
    return str(digest) if digest in store.digests() else None


def _by_prefix(prefix: str, store: ModelStore) -> str | None:
    found = [digest for digest in store.digests() if digest.startswith(prefix)]
    if len(found) > 1:
        raise ModelSourceError(
            f"{prefix} fits {len(found)} stored models; write more digits", source=prefix
        )
    return found[0] if found else None


def _named(name: str, store: ModelStore) -> InventoryItem:
    plan = plan_version(name)
    known = plan.catalogue
    try:
        stored = find_model(plan.source, store=store, sha256=plan.settings.sha256)
        problem = None
    except ModelError as exc:
        stored, problem = None, str(exc)
    licence = known.licence if known else None
    size = known.size_bytes if known else None
    return InventoryItem(
        name=name,
        sources=(str(plan.source),),
        licence=licence or licence_of(stored),
        size_bytes=stored.size_bytes if stored else size,
        digest=stored.digest if stored else None,
        problem=problem,
        conversions=conversion_dtypes(stored.digest, store=store) if stored else (),
    )


def _stored(digest: str, store: ModelStore) -> InventoryItem:
    stored: StoredModel | None = None
    problem = None
    try:
        stored = store.model(digest)
    except ModelError as exc:
        problem = str(exc)
    return InventoryItem(
        name=None,
        sources=tuple(store.sources_of(digest)),
        licence=licence_of(stored),
        size_bytes=stored.size_bytes if stored else None,
        digest=digest,
        problem=problem,
        conversions=conversion_dtypes(digest, store=store),
    )


def licence_of(stored: StoredModel | None) -> str | None:
    """Return the licence that a stored file states, spelled as the catalogue spells it."""
    if stored is None or stored.licence is None:
        return None
    spelled = {known.licence.casefold(): known.licence for known in CATALOGUE.values()}
    spelled |= {"gemma": "Gemma Terms of Use", "mit": "MIT"}
    return spelled.get(stored.licence.casefold(), stored.licence)


def conversion_dtypes(digest: str, *, store: ModelStore) -> tuple[str, ...]:
    """Return the dtypes that a stored model was converted to by this converter, sorted."""
    found = (path.name.removeprefix(f"{digest}-") for path in store.conversions(digest))
    ending = f"-v{CONVERTER}"
    return tuple(sorted(name.removesuffix(ending) for name in found if name.endswith(ending)))
