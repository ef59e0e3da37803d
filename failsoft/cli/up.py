"""``failsoft up``: everything that the settings ask for, kept running."""

import json
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from failsoft.config.home import home_folder
from failsoft.config.http import HttpConfig
from failsoft.config.schema import settings_file
from failsoft.config.settings import Settings
from failsoft.errors import ConfigError

if TYPE_CHECKING:
    from failsoft.serving.supervisor.plan import Plans

_HTTP = HttpConfig()
_SERVER_MODULES = ("starlette", "uvicorn")
_ENGINE_MODULES = ("torch", "transformers")


def up(
    config: Annotated[
        Path | None,
        typer.Option(
            help="The settings file.", show_default="failsoft.toml if there is one, else built in"
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address that the API listens on.")] = _HTTP.host,
    port: Annotated[
        int, typer.Option(help="Port of the API, the dashboard's is the next; 0 takes free ones.")
    ] = _HTTP.port,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="Another Host name to answer to; may be given several times."),
    ] = None,
) -> None:
    """Start the API, the dashboard and the engines, and keep them running."""
    if not 0 <= port <= 65534:
        raise ConfigError(key="port", value=port, allowed="0..65534")
    # The front inherits a socket, whose address may not be the name that was asked for.
    hosts = (host, *(allowed_host or ()))
    raise typer.Exit(_run(settings_file(config), host=host, port=port, allowed_hosts=hosts))


def _run(path: Path, *, host: str, port: int, allowed_hosts: Sequence[str]) -> int:
    """Run what the settings file asks for until a signal; return the exit code."""
    from failsoft.serving.supervisor.accepted import check_file
    from failsoft.serving.supervisor.plan import OwnCommands, Rules
    from failsoft.serving.supervisor.run import supervise
    from failsoft.serving.supervisor.supervisor import SupervisorConfig
    from failsoft.serving.supervisor.terminal import Terminal
    from failsoft.serving.supervisor.threads import usable_cores

    settings, problems = check_file(path, host=host, environ=os.environ)
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    for problem in problems:
        console.print(f"[bold red]error:[/] {escape(str(problem))}")
    if settings is None:
        return 2
    _check_installed(settings)
    supervisor_config = SupervisorConfig(
        path=path.absolute(),
        home=home_folder(os.environ),
        host=host,
        environ=dict(os.environ),
        num_cores=usable_cores(),
        rules=Rules(),
    )
    terminal = Terminal.of_stderr()

    def tell(plans: "Plans") -> None:
        for line in ready_lines(plans.api_url, plans.ops_url, settings):
            typer.echo(line)
        sys.stdout.flush()

    try:
        return supervise(
            supervisor_config,
            settings,
            port=port,
            commands=OwnCommands(allowed_hosts=allowed_hosts),
            terminal=terminal,
            on_ready=tell,
        )
    finally:
        terminal.close()


def _check_installed(settings: Settings) -> None:
    """Raise for what the processes will lack: here it is one line, there it is a crash each."""
    has_engines = any(endpoint.pin is not None for endpoint in settings.endpoints.values())
    # The larger need first: its extra brings the other's packages too.
    for name in (*(_ENGINE_MODULES if has_engines else ()), *_SERVER_MODULES):
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def ready_lines(api_url: str, ops_url: str, settings: Settings) -> list[str]:
    """Return what stdout gets: URL of the API, URL of the dashboard, and a line to try."""
    ladder = next(iter(settings.ladders))
    key_variable = next(iter(settings.keys.values()), None)
    return [api_url, ops_url, curl_line(api_url, ladder, key_variable)]


def curl_line(url: str, model: str, key_variable: str | None) -> str:
    """Return a command that asks *model* at *url* one question.

    Args:
        url: The API, ``/v1`` included.
        model: A ladder.
        key_variable: Environment variable that holds a caller's key; None where none is asked.
    """
    key = f' -H "Authorization: Bearer ${key_variable}"' if key_variable else ""
    messages = [{"role": "user", "content": "Say hello."}]
    body = json.dumps({"model": model, "messages": messages})
    return f"curl -s {url}/chat/completions -H 'Content-Type: application/json'{key} -d '{body}'"
