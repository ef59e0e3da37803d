"""What ``failsoft engine serve`` does: run one engine until a signal."""

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from failsoft.config.allowed import Name, allowed_words, fits
from failsoft.config.engine import EngineConfig
from failsoft.config.home import home_folder
from failsoft.config.http import HttpConfig
from failsoft.engine.cpu_defaults import set_cpu_defaults
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
    options: Mapping[str, Any],
    http_config: HttpConfig,
    config_path: Path | None = None,
    slot: str | None = None,
    is_candidate: bool = False,
    is_gentle: bool = False,
    on_ready: Callable[[str], None],
) -> int:
    """Serve *version* until a signal and return the process's exit code.

    The port is taken before the model loads, so that a taken one fails at once.

    Args:
        version: Its name.
        options: Fields of EngineConfig that were asked for; None means not asked for.
        http_config: Where the server listens.
        config_path: The settings file that may define *version*; None takes ``failsoft.toml`` of
            the working folder if there is one.
        slot: Where ladders find it: what ``pin`` of an endpoint names; None publishes nothing.
        is_candidate: Whether it is to take over *slot*, and ladders do not find it before it did.
        is_gentle: Whether the model loads at low priority.
        on_ready: Given the base URL, ``/v1`` included, once requests are answered.

    Raises:
        FailsoftError: The version cannot be served, or the port not be taken.
    """
    from failsoft.engine.http.server import base_url, bind, serve

    asked = {name: value for name, value in options.items() if value is not None}
    EngineConfig(**asked)  # a wrong value fails before OpenMP hears of it
    set_cpu_defaults(os.environ)  # before torch is imported
    if (num_threads := asked.get("num_threads")) is not None:
        os.environ["OMP_NUM_THREADS"] = str(num_threads)  # loading and the self-test too
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    with bind(http_config.host, http_config.port) as sock:
        from failsoft.engine.launch import open_server  # loads torch: seconds

        opened = open_server(
            version,
            options=asked,
            http_config=http_config,
            config_path=config_path,
            is_gentle=is_gentle,
            on_phase=lambda text: console.print(f"[dim]{escape(text)} …[/]"),
        )
        url = f"{base_url(sock)}/v1"

        withdraw = ExitStack()

        def tell() -> None:
            if slot is not None:
                withdraw.callback(_publish(opened.state, slot, url, is_candidate=is_candidate))
            name = escape(opened.state.served.name)
            console.print(f"[green]failsoft engine {name} ready on {escape(url)}[/]")
            on_ready(url)
            sys.stdout.flush()

        drain_s = opened.engine_config.drain_s

        def tell_drain(num_open: int) -> None:
            # Who read it may be gone, at which rich exits; that is no reason not to drain.
            with suppress(OSError, SystemExit):
                console.print(
                    f"[dim]stopping: {num_open} open answers get {drain_s:g} s to finish; "
                    "a second signal stops now …[/]"
                )

        with withdraw:
            return serve(opened.state, sock, drain_s=drain_s, on_ready=tell, on_drain=tell_drain)


def check_slot(slot: str | None, *, is_candidate: bool = False) -> str | None:
    """Return *slot* if it can be one.

    Raises:
        ConfigError: It is no name; it would become part of a path. Or it is None, and it is
            a candidate for nothing.
    """
    if slot is None and is_candidate:
        raise ConfigError(
            key="--candidate", value=True, allowed="with --slot, which says what it would take over"
        )
    if slot is not None and not fits(Name, slot):
        raise ConfigError(key="--slot", value=slot, allowed=allowed_words(Name))
    return slot


def _publish(
    state: "ServerState", slot: str, url: str, *, is_candidate: bool
) -> Callable[[], None]:
    """Write where the engine listens; return what withdraws that."""
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
    publish_engine(home, engine, is_candidate=is_candidate)
    return lambda: withdraw_engine(home, engine)
