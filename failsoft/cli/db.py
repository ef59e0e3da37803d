"""``failsoft db``: upgrade, measure and prune the store."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from failsoft.config.schema import DEFAULT_FILE, load_settings
from failsoft.config.settings import StoreConfig

db_app = typer.Typer(no_args_is_help=True, help="Upgrade, measure and prune the store.")

_File = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings file; failsoft.toml if it is there."),
]


def _store_config(file: Path | None) -> StoreConfig:
    """Return the file's [store]; the defaults when no file was named and there is none."""
    if file is None and not DEFAULT_FILE.exists():
        return StoreConfig()
    return load_settings(file or DEFAULT_FILE).store


@db_app.command("upgrade")
def upgrade(config: _File = None) -> None:
    """Bring the database to this version's revision; a new one is made."""
    from failsoft.store.database import Database
    from failsoft.store.migrate import upgrade as run_upgrade
    from failsoft.store.schema import HEAD

    database = Database(_store_config(config), environ=os.environ)
    try:
        before = run_upgrade(database)
    finally:
        database.dispose()
    done = "is at" if before == HEAD else "is now at"
    typer.echo(f"{database.shown_url} {done} revision {HEAD} (it was {before or 'new'})")


@db_app.command("stats")
def stats(
    config: _File = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Print what the store holds, and what was dropped on the way to it."""
    from failsoft.store import Store

    with Store(_store_config(config)) as store:
        found = asdict(store.reader.stats())
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    table = Table("what", "how many", title=escape(found["url"]))
    for name, num in found.pop("num_rows").items():
        table.add_row(f"{name} (rows)", f"{num:,}")
    for kind, num in found.pop("dropped_total").items():
        table.add_row(f"{kind} records dropped", f"{num:,}")
    for name in ("reply_bytes", "file_bytes", "oldest_call_at_ms", "newest_call_at_ms", "revision"):
        table.add_row(name, "-" if found[name] is None else str(found[name]))
    Console().print(table)


@db_app.command("prune")
def prune(
    config: _File = None,
    tenant: Annotated[
        str | None, typer.Option(help="Delete all text of this tenant too, whatever its age.")
    ] = None,
    version: Annotated[
        str | None, typer.Option(help="Delete the cached replies of this version digest too.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Delete what is older than the settings keep, and give the room back to the disk."""
    from failsoft.store import Store

    with Store(_store_config(config)) as store:
        deleted = store.retention.run()
        if tenant is not None:
            deleted += store.retention.forget_tenant(tenant)
        if version is not None and store.replies is not None:
            deleted["replies"] += store.replies.purge(version=version)
        store.retention.give_back()
    if as_json:
        typer.echo(json.dumps(dict(deleted), indent=2))
        return
    for name, num in sorted(deleted.items()):
        typer.echo(f"{name}: {num} deleted")
    if not deleted:
        typer.echo("nothing to delete")
