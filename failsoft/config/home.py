"""The folder that failsoft keeps its own files in: models, and where engines listen."""

from collections.abc import Mapping
from pathlib import Path

HOME_VARIABLE = "FAILSOFT_HOME"


def home_folder(environ: Mapping[str, str]) -> Path:
    """Return ``FAILSOFT_HOME``, or ``failsoft`` in the user's cache folder; absolute.

    >>> home_folder({"FAILSOFT_HOME": "/srv/failsoft"})
    PosixPath('/srv/failsoft')
    """
    if home := environ.get(HOME_VARIABLE):
        return Path(home).expanduser().absolute()
    cache = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser().absolute() / "failsoft"
