"""What ``failsoft engine serve`` and ``failsoft up`` share: run one engine until a signal."""

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from failsoft.config.allowed import Name, allowed_words, fits
from failsoft.config.engine import EngineConfig
from failsoft.config.home import home_folder
from failsoft.config.http import HttpConfig
from failsoft.errors import ConfigError

if TYPE_CHECKING:
    from failsoft.engine.http.served import ServerState


def read_api_key(variable: str | None) -> str | None:
    """Return the key in an environment variable, or None when no variable is named.

    Raises:
        ConfigError: The variable is not set or empty: a server must not come up open.
    """
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise ConfigError(
            key="--api-key-env",
            value=variable,
            allowed="the name of an environment variable that is set and not empty",
        )
    return key


def run_engine(
    version: str,
    *,
    engine_config: EngineConfig,
    http_config: HttpConfig,
    dtype: str | None,
    slot: str | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> int:
    """Serve *version* until a signal and return the process's exit code.

    The port is taken before the model loads, so that a taken one fails at once.

    Args:
        version: Its name.
        engine_config: How the engine runs.
        http_config: Where the server listens.
        dtype: Overrides the version's own; None keeps that.
        slot: Where ladders find it: what ``pin`` of an endpoint names; None publishes nothing.
        on_ready: Given the base URL, ``/v1`` included, once requests are answered.

    Raises:
        FailsoftError: The version cannot be served, or the port not be taken.
    """
    from failsoft.engine.http.server import base_url, bind, serve

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    with bind(http_config.host, http_config.port) as sock:
        from failsoft.engine.launch import open_server  # loads torch: seconds

        state = open_server(
            version,
            engine_config=engine_config,
            http_config=http_config,
            dtype=dtype,
            on_phase=lambda text: console.print(f"[dim]{escape(text)} …[/]"),
        )
        url = f"{base_url(sock)}/v1"

        withdraw = ExitStack()

        def tell() -> None:
            if slot is not None:
                withdraw.callback(_publish(state, slot, url))
            name = escape(state.served.name)
            console.print(f"[green]failsoft engine {name} ready on {escape(url)}[/]")
            if on_ready is not None:
                on_ready(url)
                sys.stdout.flush()

        with withdraw:
            return serve(state, sock, drain_s=engine_config.drain_s, on_ready=tell)


def check_slot(slot: str | None) -> str | None:
    """Return *slot* if it can be one.

    Raises:
        ConfigError: It is no name; it would become part of a path.
    """
    if slot is not None and not fits(Name, slot):
        raise ConfigError(key="--slot", value=slot, allowed=allowed_words(Name))
    return slot


def _publish(state: "ServerState", slot: str, url: str) -> Callable[[], None]:
    """Tell ladders where the engine listens; return what tells them that it stopped."""
    from failsoft.fallback.discovery import RunningEngine, publish_engine, withdraw_engine

    home = home_folder(os.environ)
    engine = RunningEngine(
        slot=slot,
        url=url,
        pid=os.getpid(),
        version=state.served.name,
        token=state.config.api_key,
        version_digest=state.served.version_digest,
        max_model_len=state.served.max_model_len,
    )
    publish_engine(home, engine)
    return lambda: withdraw_engine(home, engine)
