"""Reads the settings again while everything runs: all of a file is taken, or nothing."""

from collections.abc import Callable, Mapping
from pathlib import Path

from failsoft.config.schema import Checked
from failsoft.config.settings import Settings
from failsoft.errors import ConfigError
from failsoft.serving.supervisor.accepted import check_file, keep_copy, with_absolute_paths


def read_again(
    path: Path,
    *,
    before: Settings,
    effective: Callable[[Settings], Settings],
    home: Path,
    host: str,
    environ: Mapping[str, str],
) -> Checked:
    """Return the settings as the file has them now, kept for the children; or its problems.

    What is kept has the moved pins over the file's; what is returned has not.

    Args:
        path: The settings file.
        before: What runs now; stays when there is a problem.
        effective: Puts the moved pins over the file's.
        home: failsoft's folder.
        host: Where the API listens.
        environ: Where secrets are. A running process cannot be given new ones.
    """
    settings, problems = check_file(path, host=host, environ=environ)
    if settings is None:
        return Checked(None, problems)
    if settings.store != before.store:
        return Checked(None, [_store_problem(settings)])
    settings = with_absolute_paths(settings, base=path.absolute().parent)
    try:
        keep_copy(effective(settings), home=home)
    except OSError as exc:
        where = f"room and rights for a copy in {home} ({exc})"
        return Checked(None, [ConfigError(key="FAILSOFT_HOME", value=str(home), allowed=where)])
    return Checked(settings, [])


def _store_problem(settings: Settings) -> ConfigError:
    return ConfigError(
        key="store",
        value=settings.store.url,
        allowed="what it was at the start: an open store cannot change; stop `failsoft up` and "
        "start it again",
    )
