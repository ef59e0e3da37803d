"""``failsoft up``: the default engine, ready to be asked."""

import json
from typing import Annotated

import typer

from failsoft.cli.serving import check_slot, read_api_key, run_engine
from failsoft.config.catalogue import DEFAULT_MODEL
from failsoft.config.http import HttpConfig

_HTTP = HttpConfig()


def up(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = _HTTP.host,
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = _HTTP.port,
    api_key_env: Annotated[
        str | None,
        typer.Option(help="Environment variable with the key that callers must send."),
    ] = None,
    slot: Annotated[
        str | None,
        typer.Option(help="Publish it here: endpoints with this pin find it by themselves."),
    ] = None,
) -> None:
    """Start the default engine and print its URL once it answers."""
    http_config = HttpConfig(host=host, port=port, api_key=read_api_key(api_key_env))

    def tell(url: str) -> None:
        typer.echo(url)
        typer.echo(curl_line(url, api_key_env))

    code = run_engine(
        DEFAULT_MODEL,
        options={},
        http_config=http_config,
        slot=check_slot(slot),
        on_ready=tell,
    )
    raise typer.Exit(code)


def curl_line(url: str, api_key_env: str | None) -> str:
    """Return a command that asks the engine at *url* one question."""
    key = f' -H "Authorization: Bearer ${api_key_env}"' if api_key_env else ""
    body = json.dumps({"messages": [{"role": "user", "content": "Say hello."}]})
    return f"curl -s {url}/chat/completions -H 'Content-Type: application/json'{key} -d '{body}'"
