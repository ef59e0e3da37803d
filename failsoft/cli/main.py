"""The root command: registers the nouns, and turns a FailsoftError into one line.

Exit codes: 0 fine, 1 work or gate failed, 2 usage or config, 130 Ctrl-C. A bug
keeps its traceback. Nouns import their parts inside their verbs, so that
``failsoft --help`` loads no torch.
"""

import os
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from failsoft import __version__
from failsoft.cli import models
from failsoft.cli.bench import bench_app
from failsoft.cli.chat import chat
from failsoft.cli.config import config_app
from failsoft.cli.db import db_app
from failsoft.cli.demo import demo
from failsoft.cli.engine import engine_app
from failsoft.cli.front import front
from failsoft.cli.ops import ops
from failsoft.cli.pin import pin_app, rollback
from failsoft.cli.status import status
from failsoft.cli.up import up
from failsoft.cli.versions import versions_app
from failsoft.errors import ConfigError, FailsoftError

app = typer.Typer(
    name="failsoft",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Keep an LLM feature answering.",
)
app.add_typer(bench_app, name="bench")
app.add_typer(config_app, name="config")
app.add_typer(db_app, name="db")
app.add_typer(engine_app, name="engine")
app.add_typer(pin_app, name="pin")
app.command("chat")(chat)
app.command("front", hidden=True)(front)
app.command("ops", hidden=True)(ops)
app.command("status")(status)
app.command("rollback")(rollback)
app.command("up")(up)
app.add_typer(models.app, name="models")
app.add_typer(versions_app, name="versions")
app.command("demo")(demo)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"failsoft {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[  # noqa: ARG001 - its callback acts
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print version."),
    ] = False,
) -> None:
    """Keep an LLM feature answering."""
    if "FAILSOFT_LIFELINE_FD" in os.environ:  # a child of `failsoft up`
        from failsoft.serving.lifeline import watch

        watch(os.environ)


_EXTRAS = {
    "server": frozenset(
        {
            "apscheduler",
            "flask",
            "prometheus_client",
            "starlette",
            "uvicorn",
            "uvloop",
            "waitress",
        }
    ),
    "engine": frozenset(
        {
            "accelerate",
            "gguf",
            "huggingface_hub",
            "llguidance",
            "jinja2",
            "numpy",
            "safetensors",
            "tokenizers",
            "torch",
            "transformers",
        }
    ),
}
"""What each extra brings; ``engine`` brings ``server`` too."""


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        app()
    except FailsoftError as exc:
        _fail(str(exc), code=2 if isinstance(exc, ConfigError) else 1)
    except ModuleNotFoundError as exc:
        module = (exc.name or "").partition(".")[0]
        extra = next((name for name, modules in _EXTRAS.items() if module in modules), None)
        if extra is None:
            raise
        _fail(
            f"this command needs {module}; install it with: pip install 'failsoft[{extra}]'",
            code=2,
        )
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(message: str, *, code: int) -> None:
    """Print one line on stderr and exit with *code*."""
    Console(stderr=True).print(f"[bold red]error:[/] {escape(message)}", soft_wrap=True)
    sys.exit(code)
