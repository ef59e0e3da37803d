"""``failsoft versions``: what each name means, down to the digest, and how two differ.

Parts are imported inside the verbs, so that ``failsoft --help`` stays quick. Nothing here
fetches or converts.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from failsoft.cli.pin_glance import moved_away
from failsoft.cli.plain_output import print_columns, print_json
from failsoft.cli.version_text import difference_lines, long_text, value_text
from failsoft.config.schema import load_settings, settings_file

if TYPE_CHECKING:
    from failsoft.engine.models.store import ModelStore
    from failsoft.engine.models.version_diff import VersionDiff
    from failsoft.engine.models.version_facts import VersionFacts
    from failsoft.engine.models.version_verify import VersionVerdict

versions_app = typer.Typer(no_args_is_help=True, help="Show, check and compare versions.")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Config = Annotated[
    Path | None,
    typer.Option(help="The settings file.", show_default="failsoft.toml, else the built-in one"),
]
What = Annotated[
    str, typer.Argument(help="A name, or at least 6 first digits of a version digest.")
]
_HEAD = 12
"""Digits of a digest where it need not be copied."""


def _store() -> "ModelStore":
    from failsoft.engine.models.store import ModelStore

    return ModelStore()


@versions_app.command("list")
def list_versions(config: Config = None, as_json: Json = False) -> None:
    """List every version of the settings file and of the catalogue, with its digest.

    Pins are the file's; where moves took them away from it, stderr says so.
    """
    from failsoft.engine.models.version_facts import all_version_facts

    path = settings_file(config)
    settings = load_settings(path)
    pins = settings.pins
    for line in moved_away(settings, path, os.environ):
        typer.echo(f"warning: {line}", err=True)
    known = all_version_facts(config_path=path, store=_store())
    if as_json:
        print_json({"settings": str(path), "versions": [_item_json(f, pins) for f in known]})
        return
    typer.echo(f"settings: {path}")
    header = ("version", "digest", "dtype", "pinned by", "stored")
    print_columns([header, *(_row(facts, pins) for facts in known)])
    if any(facts.problem is not None for facts in known):
        typer.echo("broken: run `failsoft versions verify`")


def _slots(pins: Mapping[str, str], name: str) -> list[str]:
    return [slot for slot, version in pins.items() if version == name]


def _state(facts: "VersionFacts") -> str:
    if facts.problem is not None:
        return "broken"
    return "no" if facts.stored is None else "yes"


def _row(facts: "VersionFacts", pins: Mapping[str, str]) -> tuple[str, ...]:
    digest = "-" if facts.version is None else facts.version.digest[:_HEAD]
    slots = ",".join(_slots(pins, facts.name)) or "-"
    return (facts.name, digest, facts.dtype, slots, _state(facts))


def _item_json(facts: "VersionFacts", pins: Mapping[str, str]) -> dict[str, object]:
    return {
        "name": facts.name,
        "version_digest": None if facts.version is None else facts.version.digest,
        "model_digest": None if facts.stored is None else facts.stored.digest,
        "dtype": facts.dtype,
        "pinned_by": _slots(pins, facts.name),
        "is_stored": facts.stored is not None,
        "problem": facts.problem,
    }


@versions_app.command()
def show(what: What, config: Config = None, as_json: Json = False) -> None:
    """Show all that a version is: what its digest covers, and what it does not."""
    from failsoft.engine.models.version_diff import outside_of_digest
    from failsoft.engine.models.version_facts import find_version_facts, require_version

    path = settings_file(config)
    facts = find_version_facts(what, config_path=path, store=_store())
    version = require_version(facts)
    known, slots = facts.plan.catalogue, _slots(load_settings(path).pins, facts.name)
    outside = outside_of_digest(version) | {
        "source": str(facts.plan.source),
        "licence": facts.licence or "not stated",
        "licence_url": known.licence_url if known else None,
        "model_digest": version.model_digest,
        "pinned_by": slots,
    }
    if as_json:
        manifest = version.to_manifest()
        identity = {"name": facts.name, "version_digest": version.digest, "manifest": manifest}
        print_json(identity | outside)
        return
    typer.echo(f"name: {facts.name}\nversion_digest: {version.digest}")
    typer.echo("\nin the digest:")
    for key, value in version.to_manifest().items():
        is_prose = key in ("chat_template", "system_prompt") and isinstance(value, str)
        typer.echo(f"  {key}: {long_text(str(value)) if is_prose else value_text(value)}")
    typer.echo("\noutside of the digest:")
    for key, value in (outside | {"pinned_by": ", ".join(slots) or None}).items():
        typer.echo(f"  {key}: {value_text(value)}")


@versions_app.command()
def verify(
    what: Annotated[
        list[str] | None, typer.Argument(help="Names or first digits; all that are stored if none.")
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Read every byte of versions again; exit 1 if one is not what its digest says."""
    from failsoft.engine.models.version_facts import all_version_facts, find_version_facts
    from failsoft.engine.models.version_verify import verify_versions

    path, store = settings_file(config), _store()
    if what:
        versions = [find_version_facts(text, config_path=path, store=store) for text in what]
    else:
        versions = all_version_facts(config_path=path, store=store)
    verdicts = verify_versions(versions, store=store)
    if as_json:
        print_json({"versions": [_verdict_json(verdict) for verdict in verdicts]})
    else:
        for line in _verdict_lines(verdicts):
            typer.echo(line)
    failed = [v for v in verdicts if v.is_good is False or (v.is_good is None and what)]
    for command in dict.fromkeys(verdict.repair for verdict in failed):
        typer.echo(f"to have it good, run: {command}", err=True)
    if failed:
        raise typer.Exit(1)


def _verdict_lines(verdicts: "list[VersionVerdict]") -> Iterator[str]:
    words = {True: "good", False: "bad", None: "not stored"}
    for verdict in verdicts:
        version = verdict.facts.version
        digest = "" if version is None else f" {version.digest[:_HEAD]}"
        bad = [check for check in verdict.checks if not check.is_good]
        yield f"{words[verdict.is_good]}: {verdict.facts.name}{digest}"
        if verdict.problem is not None:
            yield f"  {verdict.problem}"
        for check in bad:
            found = "it is missing" if check.actual is None else f"found {check.actual}"
            yield f"  {check.path}: expected {check.expected}, {found}"
    counts = [sum(v.is_good is key for v in verdicts) for key in words]
    num = "1 version" if len(verdicts) == 1 else f"{len(verdicts)} versions"
    yield f"{num}: " + ", ".join(f"{n} {w}" for n, w in zip(counts, words.values(), strict=True))


def _verdict_json(verdict: "VersionVerdict") -> dict[str, object]:
    version = verdict.facts.version
    return {
        "name": verdict.facts.name,
        "version_digest": None if version is None else version.digest,
        "model_digest": verdict.model_digest,
        "is_stored": verdict.model_digest is not None,
        "is_good": verdict.is_good,
        "problem": verdict.problem,
        "files": [{**check._asdict(), "is_good": check.is_good} for check in verdict.checks],
    }


@versions_app.command()
def diff(a: What, b: What, config: Config = None, as_json: Json = False) -> None:
    """Say how two versions differ, and what of it may change an answer."""
    from failsoft.engine.models.version_diff import diff_versions
    from failsoft.engine.models.version_facts import find_version_facts, require_version

    path, store = settings_file(config), _store()
    facts = [find_version_facts(text, config_path=path, store=store) for text in (a, b)]
    first, second = (require_version(one) for one in facts)
    sources = str(facts[0].plan.source), str(facts[1].plan.source)
    found = diff_versions(first, second, sources=sources)
    names = {"a": (first.name, first.digest), "b": (second.name, second.digest)}
    if as_json:
        print_json(_diff_json(names, found))
        return
    for side, (name, digest) in names.items():
        typer.echo(f"{side}: {name} {digest}")
    for line in _diff_lines(found):
        typer.echo(line)


def _diff_json(names: Mapping[str, tuple[str, str]], found: "VersionDiff") -> dict[str, object]:
    return {
        **{side: {"name": name, "version_digest": d} for side, (name, d) in names.items()},
        "is_same": found.is_same,
        "in_digest": {key: pair._asdict() for key, pair in found.in_digest.items()},
        "outside_of_digest": {key: pair._asdict() for key, pair in found.outside.items()},
    }


def _diff_lines(found: "VersionDiff") -> Iterator[str]:
    if found.is_same:
        yield "same digest: they answer alike"
    else:
        yield "in the digest, so that answers may differ:"
        for key, pair in found.in_digest.items():
            yield from (f"  {line}" for line in difference_lines(key, pair.a, pair.b))
        equal = f"equal: {', '.join(found.equal) or 'nothing'}"
        yield from wrap(equal, width=80, initial_indent="  ", subsequent_indent="    ")
    if found.outside:
        yield "outside of the digest, which changes no answer:"
        for key, pair in found.outside.items():
            yield from (f"  {line}" for line in difference_lines(key, pair.a, pair.b))


@versions_app.command("check", hidden=True)
def check(
    name: Annotated[str, typer.Argument(help="A version of the file, or a catalogue model.")],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Read a version's bytes again and say what an engine of it would need; exit 0 either way."""
    from failsoft.engine.models.version_check import check_version

    found = check_version(name, config_path=settings_file(config), store=_store())
    if as_json:
        print_json(found.to_json())
        return
    for problem in found.problems:
        typer.echo(problem)
    if not found.problems and found.version is not None:
        typer.echo(f"{name} can be served: {found.version.digest}")
