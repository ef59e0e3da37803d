"""``failsoft front``: the ladder over HTTP; `failsoft up` starts it, seldom a user."""

import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from failsoft.config.front import FrontConfig
from failsoft.config.http import HttpConfig
from failsoft.config.schema import settings_file
from failsoft.errors import ConfigError

_FRONT, _HTTP = FrontConfig(), HttpConfig()


def front(
    config: Annotated[
        Path | None,
        typer.Option(
            help="The settings file.", show_default="failsoft.toml if there is one, else built in"
        ),
    ] = None,
    fd: Annotated[
        int | None, typer.Option(help="A bound socket to listen on, instead of host and port.")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on.", show_default=_HTTP.host)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Port to listen on; 0 takes a free one.", show_default=str(_HTTP.port)),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="Another Host name to answer to; may be given several times."),
    ] = None,
    drain_s: Annotated[
        float, typer.Option(help="Seconds that open calls get to finish at the end.")
    ] = _FRONT.drain_s,
    max_body_bytes: Annotated[
        int, typer.Option(help="Bytes of a request's body at most.")
    ] = _FRONT.max_body_bytes,
    body_timeout_s: Annotated[
        float, typer.Option(help="Seconds that a request's body may take to arrive.")
    ] = _FRONT.body_timeout_s,
) -> None:
    """Serve the ladders of the settings file as an OpenAI API until SIGTERM or Ctrl-C."""
    from failsoft.serving.front.run import run_front

    front_config = FrontConfig(
        allowed_hosts=tuple(allowed_host or ()),
        drain_s=drain_s,
        max_body_bytes=max_body_bytes,
        body_timeout_s=body_timeout_s,
    )
    console = Console(stderr=True, soft_wrap=True, highlight=False)

    def tell_ready(url: str) -> None:
        typer.echo(url)
        sys.stdout.flush()

    def tell(line: str) -> None:
        # Who read it may be gone with the supervisor, at which rich exits; draining goes on.
        with suppress(OSError, SystemExit):
            console.print(escape(line))

    code = run_front(
        settings_file(config),
        _listener(fd, host, port),
        config=front_config,
        environ=os.environ,
        on_ready=tell_ready,
        tell=tell,
    )
    raise typer.Exit(code)


def _listener(fd: int | None, host: str | None, port: int | None) -> socket.socket:
    """Return the bound socket that the options name.

    Raises:
        ConfigError: They name two, or it cannot be had.
    """
    from failsoft.engine.http.listen import bind

    if fd is None:
        return bind(host or _HTTP.host, _HTTP.port if port is None else port)
    if host is not None or port is not None:
        raise ConfigError(key="--fd", value=fd, allowed="without --host and --port")
    try:
        return socket.socket(fileno=fd)
    except OSError as exc:
        raise ConfigError(
            key="--fd", value=fd, allowed=f"the number of an open socket ({exc.strerror})"
        ) from exc
