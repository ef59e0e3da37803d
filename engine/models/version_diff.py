"""What tells two versions apart: what is in their digests, and what is not.

Knows nothing of stores and of torch.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import NamedTuple

from failsoft.engine.models.version import OPTIONS_IN_DIGEST, Version


class Difference(NamedTuple):
    """One key's two values, as JSON; None stands for none."""

    a: object
    b: object


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDiff:
    """Two versions compared."""

    in_digest: Mapping[str, Difference]
    """Keys of the manifest that differ: what may change an answer. Empty for equal digests."""
    equal: tuple[str, ...]
    """Keys of the manifest that do not."""
    outside: Mapping[str, Difference]
    """What differs and changes no answer: price, source, engine options that change the speed."""

    @property
    def is_same(self) -> bool:
        """Whether the two have one digest, and so answer alike."""
        return not self.in_digest


def diff_versions(a: Version, b: Version, *, sources: tuple[str, str]) -> VersionDiff:
    """Compare two versions.

    Args:
        a: The one.
        b: The other.
        sources: Where the bytes of each come from.
    """
    manifests = a.to_manifest(), b.to_manifest()
    in_digest = _differences(*manifests)
    return VersionDiff(
        in_digest=in_digest,
        equal=tuple(key for key in manifests[0] if key not in in_digest and key != "schema"),
        outside=_differences(_outside(a, sources[0]), _outside(b, sources[1])),
    )


def outside_of_digest(version: Version) -> dict[str, object]:
    """Return what a version has beside its manifest, as JSON values: price and engine options."""
    options = {k: v for k, v in version.engine_options if k not in OPTIONS_IN_DIGEST}
    price = None if version.price is None else asdict(version.price)
    return {"price": price, **{f"engine.{name}": value for name, value in options.items()}}


def _outside(version: Version, source: str) -> dict[str, object]:
    return {**outside_of_digest(version), "source": source}


def _differences(a: Mapping[str, object], b: Mapping[str, object]) -> dict[str, Difference]:
    pairs = {key: Difference(a.get(key), b.get(key)) for key in dict.fromkeys([*a, *b])}
    return {key: pair for key, pair in pairs.items() if pair.a != pair.b}
