"""``failsoft ops``: the dashboard's process; hidden, for ``failsoft up`` starts it."""

import socket
from pathlib import Path
from typing import Annotated

import typer

from failsoft.config.http import is_loopback
from failsoft.config.schema import settings_file
from failsoft.errors import ConfigError


def ops(
    config: Annotated[
        Path | None,
        typer.Option(
            help="The settings file.", show_default="failsoft.toml if it is there, else built in"
        ),
    ] = None,
    fd: Annotated[
        int | None, typer.Option(help="A bound socket that was inherited, by its number.")
    ] = None,
    host: Annotated[str, typer.Option(help="Loopback address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8001,
) -> None:
    """Serve the Now page until SIGTERM or Ctrl-C; `failsoft up` starts this by itself."""
    from failsoft.serving.ops.signals import Signals

    signals = Signals()  # first of all: a signal during the start must not kill
    with _socket(fd, host, port) as sock:
        from failsoft.engine.http.server import base_url
        from failsoft.serving.ops.process import serve

        url = base_url(sock)
        code = serve(settings_file(config), sock, signals=signals, on_ready=lambda: typer.echo(url))
    raise typer.Exit(code)


def _socket(fd: int | None, host: str, port: int) -> socket.socket:
    """Return the inherited socket, or bind one.

    Raises:
        ConfigError: *fd* is no socket, the port is taken, or others could reach the page.
    """
    from failsoft.engine.http.server import bind

    if fd is not None:
        try:
            return socket.socket(fileno=fd)
        except OSError as exc:
            raise ConfigError(
                key="--fd", value=fd, allowed=f"an inherited socket ({exc.strerror})"
            ) from exc
    if not is_loopback(host):
        raise ConfigError(
            key="--host",
            value=host,
            allowed="a loopback address: the page has no login; reach it through an SSH tunnel",
        )
    return bind(host, port)
