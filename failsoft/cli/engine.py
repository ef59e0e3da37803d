"""``failsoft engine``: serve one version over OpenAI's HTTP API."""

from pathlib import Path
from typing import Annotated

import typer

from failsoft.cli.serving import check_slot, read_api_key, run_engine
from failsoft.config.catalogue import DEFAULT_MODEL
from failsoft.config.engine import EngineConfig
from failsoft.config.http import HttpConfig

engine_app = typer.Typer(no_args_is_help=True, help="Run one engine.")

_ENGINE = EngineConfig()
# What is not given on the command line is the version's to say, so no option has a default.
_RUNNING, _STEP = str(_ENGINE.max_running), str(_ENGINE.max_step_tokens)
_WAITING = str(_ENGINE.max_waiting)
_HTTP = HttpConfig()


@engine_app.callback()
def _engine() -> None:
    """Run one engine."""


@engine_app.command("serve")
def serve(
    version: Annotated[
        str, typer.Option(help="A version of failsoft.toml, or a catalogue model.")
    ] = DEFAULT_MODEL,
    config: Annotated[
        Path | None,
        typer.Option(help="The settings file.", show_default="failsoft.toml if there is one"),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = _HTTP.host,
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = _HTTP.port,
    dtype: Annotated[
        str | None,
        typer.Option(help="auto, float32, bfloat16 or int8.", show_default="the version's own"),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="cpu or cuda.", show_default="cuda where there is one"),
    ] = None,
    max_running: Annotated[
        int | None, typer.Option(help="Requests in one forward at most.", show_default=_RUNNING)
    ] = None,
    max_step_tokens: Annotated[
        int | None, typer.Option(help="Tokens in one forward at most.", show_default=_STEP)
    ] = None,
    kv_blocks: Annotated[
        int | None,
        typer.Option(help="KV blocks in the pool.", show_default="what its memory holds"),
    ] = None,
    max_waiting: Annotated[
        int | None,
        typer.Option(help="Requests queued at most; the next one gets 503.", show_default=_WAITING),
    ] = None,
    prefix_cache: Annotated[
        bool | None,
        typer.Option(
            "--prefix-cache/--no-prefix-cache",
            help="Share the KV blocks of equal prompt beginnings.",
            show_default="on",
        ),
    ] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(help="Environment variable with the key that callers must send."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="CPU threads of a forward.", show_default="one a core")
    ] = None,
    gentle_load: Annotated[
        bool,
        typer.Option(
            "--gentle-load",
            help="Load at low priority, so that neighbours keep their speed (Linux).",
        ),
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="Another Host name to answer to; may be given several times."),
    ] = None,
    slot: Annotated[
        str | None,
        typer.Option(help="Publish it here: endpoints with this pin find it by themselves."),
    ] = None,
    candidate: Annotated[
        bool,
        typer.Option(
            "--candidate",
            help="Publish it beside the slot's engine: endpoints find it once it is promoted.",
        ),
    ] = False,
) -> None:
    """Serve one version until SIGTERM or Ctrl-C; running answers may finish."""
    http_config = HttpConfig(
        host=host,
        port=port,
        allowed_hosts=tuple(allowed_host or ()),
        api_key=read_api_key(api_key_env),
    )
    options = {
        "dtype": dtype,
        "device": device,
        "max_running": max_running,
        "max_step_tokens": max_step_tokens,
        "num_kv_blocks": kv_blocks,
        "max_waiting": max_waiting,
        "prefix_cache": prefix_cache,
        "num_threads": threads,
    }
    code = run_engine(
        version,
        options=options,
        http_config=http_config,
        config_path=config,
        is_gentle=gentle_load,
        slot=check_slot(slot, is_candidate=candidate),
        is_candidate=candidate,
        on_ready=typer.echo,
    )
    raise typer.Exit(code)
