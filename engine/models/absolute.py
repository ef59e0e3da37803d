"""A version's settings made independent of the folder their file lies in.

So they can be kept elsewhere, in another file or in the store, and still mean the same.
"""

from dataclasses import asdict, replace
from pathlib import Path

from failsoft.config.sources import FileSource, parse_source
from failsoft.config.versions import VersionSettings
from failsoft.engine.models.templates import BUILTIN


def with_absolute_paths(version: VersionSettings, *, base: Path) -> VersionSettings:
    """Return *version* with its paths counted from *base*, the file's folder.

    Raises:
        ModelSourceError: Its source is malformed or floats.
    """
    source, template = parse_source(version.source, base=base), version.template
    if isinstance(source, FileSource):
        version = replace(version, source=str(source))
    if template is not None and template not in BUILTIN:
        version = replace(version, template=str(base / Path(template).expanduser()))
    return version


def as_table(version: VersionSettings) -> dict[str, object]:
    """Return *version* as its ``[versions.NAME]`` table reads: JSON values, unset keys left out."""
    table = asdict(version)
    if (price := table["price"]) is not None:
        table["price"] = {key: value for key, value in price.items() if value is not None}
    table["stop"] = list(version.stop) or None
    return {key: value for key, value in table.items() if value is not None}
