"""Opens a client's parts from a settings file or settings."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from failsoft.config.home import home_folder
from failsoft.config.schema import load_settings
from failsoft.config.settings import Settings
from failsoft.fallback.core import Backends, Core
from failsoft.fallback.surroundings import Surroundings
from failsoft.fallback.transport import Transport, load_library
from failsoft.store.store import Store

SettingsSource = str | os.PathLike[str] | Settings


def open_core(
    source: SettingsSource,
    *,
    backends: Backends | None,
    environ: Mapping[str, str] | None,
    surroundings: Surroundings | None,
    make_transport: Callable[[], Transport],
) -> Core:
    """Return a client's working parts.

    Raises:
        ConfigError: The settings are wrong, or an API key's variable is not set.
        StoreError: The store cannot be opened, and waiting will not help.
    """
    load_library()
    settings = read_source(source)
    env = os.environ if environ is None else environ
    return Core(
        settings,
        backends=backends or store_backends(settings, env)[0],
        home=home_folder(env),
        environ=env,
        surroundings=surroundings or Surroundings(),
        make_transport=make_transport,
    )


def read_source(source: SettingsSource) -> Settings:
    """Return the settings that *source* is, or names.

    Raises:
        ConfigError: They are wrong.
    """
    return source if isinstance(source, Settings) else load_settings(Path(source))


def store_backends(settings: Settings, environ: Mapping[str, str]) -> tuple[Backends, Store]:
    """Open the settings' store; return a client's backends in it, and the store itself.

    A database that is out of reach costs records and kept replies, and no answer: it is opened
    once it works.

    Raises:
        ConfigError: The password's variable is not set.
        StoreError: It cannot be opened, and waiting will not help.
    """
    store = Store(settings.store, environ=environ, may_wait=True)
    backends = Backends(
        recorder=store.recorder,
        replies=store.replies,
        keys=store.idempotency,
        pins=store.pins,
        close=store.close,
    )
    return backends, store
