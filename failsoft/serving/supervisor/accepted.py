"""The settings that `failsoft up` runs by: checked whole, then kept as they were accepted.

Children read a copy: a file that is edited while they run, and is not yet or never accepted,
must not be what an engine starts with after a crash. The copy's paths are absolute, since it
lies elsewhere than the file.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from failsoft.config.http import is_loopback
from failsoft.config.run_files import write_private
from failsoft.config.schema import Checked, check_settings, read_settings
from failsoft.config.secrets import read_secret
from failsoft.config.settings import CACHE_RUNG, Settings
from failsoft.config.show import as_tables, as_toml
from failsoft.engine.models.absolute import with_absolute_paths as absolute
from failsoft.errors import ConfigError
from failsoft.run_state import accepted_settings


def check_file(path: Path, *, host: str, environ: Mapping[str, str]) -> Checked:
    """Read *path* and collect all that keeps `failsoft up` from running by it.

    Args:
        path: The settings file.
        host: Where the API listens.
        environ: Where secrets are; children inherit it.
    """
    checked = check_settings(path)
    if checked.settings is None:
        return checked
    problems = list(_problems(checked.settings, host=host, environ=environ))
    return Checked(None if problems else checked.settings, problems)


def _problems(
    settings: Settings, *, host: str, environ: Mapping[str, str]
) -> Iterator[ConfigError]:
    if not settings.ladders:
        yield ConfigError(
            key="ladders", value=None, allowed="at least one [ladders.NAME], which callers ask"
        )
    if not is_loopback(host) and not settings.keys:
        yield ConfigError(
            key="host",
            value=host,
            allowed="a loopback address such as 127.0.0.1, unless [keys] says who may call",
        )
    for key, variable in _secrets(settings):
        try:
            read_secret(variable, key=key, environ=environ)
        except ConfigError as exc:
            yield exc


def _secrets(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield each setting in use that names an environment variable, and the variable."""
    if settings.store.password_env is not None:
        yield "store.password_env", settings.store.password_env
    used = {rung for ladder in settings.ladders.values() for rung in ladder.rungs}
    for name in sorted(used - {CACHE_RUNG}):
        variable = settings.endpoints[name].api_key_env
        if variable is not None:
            yield f"endpoints.{name}.api_key_env", variable
    for name, variable in settings.keys.items():
        yield f"keys.{name}", variable


def with_absolute_paths(settings: Settings, *, base: Path) -> Settings:
    """Return *settings* with every path in a version counted from *base*, the file's folder."""
    versions = {name: absolute(version, base=base) for name, version in settings.versions.items()}
    return replace(settings, versions=versions)


def keep_copy(settings: Settings, *, home: Path) -> Path:
    """Write what children are to run by, and return where.

    Args:
        settings: Accepted, with absolute paths.
        home: failsoft's folder.
    """
    path = accepted_settings(home)
    write_private(path, copy_of(settings))
    return path


def copy_of(settings: Settings) -> str:
    """Return the text of a file that reads back as *settings*, whose paths are absolute."""
    text = as_toml(as_tables(settings))
    read_back = read_settings(tomllib.loads(text)).settings
    assert read_back == settings, "the copy must read back as it was accepted"
    return f"# What `failsoft up` runs by now; a copy, changes are lost.\n\n{text}"
