"""``failsoft models``: what is stored, and what could be fetched.

Results go to stdout, progress to stderr. Parts are imported inside the verbs, so
that ``failsoft --help`` stays quick.
"""

import shlex
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal

from failsoft.cli.pinned_models import pins_needing
from failsoft.cli.plain_output import print_columns, print_json
from failsoft.errors import ModelError

if TYPE_CHECKING:
    from failsoft.engine.models.inventory import InventoryItem
    from failsoft.engine.models.store import ModelStore, StoredModel
    from failsoft.engine.models.verify import FileCheck

app = typer.Typer(no_args_is_help=True, help="List, fetch, check and delete models.")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
What = Annotated[str, typer.Argument(help="A name, a source line or a digest's first digits.")]


def _store() -> "ModelStore":
    from failsoft.engine.models.store import ModelStore

    return ModelStore()


def _item_json(item: "InventoryItem") -> dict[str, object]:
    return {
        "name": item.name,
        "sources": list(item.sources),
        "licence": item.licence,
        "size_bytes": item.size_bytes,
        "digest": item.digest,
        "is_stored": item.digest is not None,
        "problem": item.problem,
        "conversions": list(item.conversions),
    }


@app.command("list")
def list_models(as_json: Json = False) -> None:
    """List the models that can be served by name, and those that are stored."""
    from failsoft.engine.models.inventory import inventory

    store = _store()
    items = inventory(store)
    if as_json:
        print_json({"store": str(store.root), "models": [_item_json(item) for item in items]})
        return
    typer.echo(f"store: {store.root}")
    print_columns([("model", "size", "digest", "dtypes", "licence"), *map(_row, items)])
    if any(item.problem is not None for item in items):
        typer.echo("broken: run `failsoft models verify`")


def _row(item: "InventoryItem") -> tuple[str, ...]:
    state = "not fetched" if item.digest is None else item.digest[:12]
    return (
        item.name or "-",
        "?" if item.size_bytes is None else decimal(item.size_bytes),
        state if item.problem is None else "broken",
        ",".join(item.conversions) or "-",
        item.licence or "not stated",
    )


@app.command()
def add(
    what: Annotated[str, typer.Argument(help="A name, or a pinned source line.")],
    sha256: Annotated[str | None, typer.Option(help="Digest that it must have.")] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="Convert for: auto, float32, bfloat16 or int8.", show_default="the version's own"
        ),
    ] = None,
    fetch_only: Annotated[bool, typer.Option("--fetch-only", help="Do not convert.")] = False,
) -> None:
    """Fetch a model into the store, and convert it so that it loads at once.

    What is stored already is read again; what of it is damaged is made anew.
    """
    from failsoft.engine.models.inventory import plan_text
    from failsoft.engine.models.repair import add_model

    store = _store()
    plan = plan_text(what, sha256=sha256)
    if plan.catalogue is not None:
        typer.echo(f"licence: {plan.catalogue.licence}, {plan.catalogue.licence_url}", err=True)
    stored = add_model(plan.source, store=store, sha256=plan.settings.sha256)
    if not fetch_only:
        _convert(stored, dtype or plan.settings.dtype, store)
    typer.echo(stored.digest)


def _convert(stored: "StoredModel", dtype: str, store: "ModelStore") -> None:
    from failsoft.engine.models.convert import ensure_converted
    from failsoft.engine.models.resolve import resolve_dtype
    from failsoft.engine.models.version import weights_dtype

    chosen = resolve_dtype(dtype, stored, store=store)
    ensure_converted(stored, dtype=weights_dtype(chosen), store=store)


@app.command()
def show(
    what: What,
    dtype: Annotated[str | None, typer.Option(help="Override the version's dtype.")] = None,
    as_json: Json = False,
) -> None:
    """Show one stored model and the version it makes: its manifest and digest."""
    from failsoft.engine.models.inventory import describe

    facts = describe(what, store=_store(), dtype=dtype)
    if as_json:
        print_json(facts)
        return
    for line in _fact_lines(facts):
        typer.echo(line)


def _fact_lines(facts: dict[str, object]) -> list[str]:
    """Return one ``key: value`` line for each fact, or for each item of a list."""
    lines = []
    for key, value in facts.items():
        if key == "manifest":  # a nested document: --json shows it
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                text = " ".join(str(part) for part in item.values() if part is not None)
            else:
                text = "-" if item is None else str(item)
            lines.append(f"{key}: {text}")
    return lines


@app.command()
def verify(
    what: Annotated[list[str] | None, typer.Argument(help="Names or digests; all if none.")] = None,
    as_json: Json = False,
) -> None:
    """Read every stored byte again; exit 1 if one is not what was stored."""
    from failsoft.engine.models.inventory import add_command, find_digest
    from failsoft.engine.models.verify import verify_model

    store = _store()
    digests = [find_digest(text, store=store) for text in what] if what else store.digests()
    found = {digest: verify_model(digest, store=store) for digest in digests}
    checks = [check for of_one in found.values() for check in of_one]
    if as_json:
        print_json({"files": [{**c._asdict(), "is_good": c.is_good} for c in checks]})
    else:
        _print_checks(len(found), checks)
    broken = [digest for digest in found if not all(check.is_good for check in found[digest])]
    for digest in broken:
        typer.echo(f"to repair it, run: {add_command(digest, store=store)}", err=True)
    if broken:
        raise typer.Exit(1)


def _print_checks(num_models: int, checks: "list[FileCheck]") -> None:
    bad = [check for check in checks if not check.is_good]
    for check in bad:
        found = "it is missing" if check.actual is None else f"found {check.actual}"
        typer.echo(f"bad: {check.path}: expected {check.expected}, {found}")
    models = "1 model" if num_models == 1 else f"{num_models} models"
    good = len(checks) - len(bad)
    typer.echo(f"{models}, {good} {'file' if good == 1 else 'files'} good, {len(bad)} bad")


@app.command()
def remove(
    what: What,
    force: Annotated[
        bool, typer.Option("--force", help="Also if other names or pins use it.")
    ] = False,
) -> None:
    """Delete a stored model and everything converted from it."""
    from failsoft.engine.models.inventory import find_digest, names_of

    store = _store()
    digest = find_digest(what, store=store)
    if not force and (pinned := pins_needing(digest, models=store)):
        raise ModelError(
            f"{what} is pinned: {'; '.join(pinned)}; pin another version there first, or: "
            f"failsoft models remove --force {shlex.quote(what)}"
        )
    names = names_of(digest, store=store)
    others = ", ".join(name for name in names if name != what)
    # Digits or a source line mean the bytes: only several names for them are a surprise.
    if not force and (others if what in names else len(names) > 1):
        raise ModelError(
            f"{what} has the same bytes as {others}; removing it removes them too: "
            f"failsoft models remove --force {shlex.quote(what)}"
        )
    store.remove(digest)
    typer.echo(f"removed {digest}" + (f", which was also {others}" if others else ""))
