"""``failsoft pin``: which version each slot runs, how that came about, and how to change it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from failsoft.pin_records import MoveKind, PinMove, PinnedVersion, Swap

pin_app = typer.Typer(no_args_is_help=True, help="Show pins, move them, and tell their history.")

Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The settings file.",
        show_default="what `failsoft up` runs with, else failsoft.toml, else built in",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document.")]
Slot = Annotated[str, typer.Argument(metavar="SLOT", help="A slot that the settings pin.")]
AnySlot = Annotated[
    str | None,
    typer.Argument(metavar="SLOT", help="A slot that the settings pin.", show_default="all"),
]
Why = Annotated[
    str, typer.Option("--why", metavar="TEXT", help="The reason; the history keeps it.")
]
Who = Annotated[
    str | None,
    typer.Option("--who", metavar="NAME", help="Who wants it.", show_default="user@host"),
]
SwapOption = Annotated[
    Swap,
    typer.Option(
        "--swap",
        help="Start the new engine beside the old one; or, where memory does not hold both, stop "
        "the old one first while the ladder's other rungs answer.",
    ),
]
AcceptUnproven = Annotated[
    bool,
    typer.Option(
        "--accept-unproven",
        help="Take a version that has no eval, or a worse one; the history keeps it.",
    ),
]
Orphaned = Annotated[
    bool,
    typer.Option(
        "--orphaned",
        help="End the move in the store: the `failsoft up` that had it, on another machine, is "
        "gone for good. Once it has switched, its pin goes back.",
    ),
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Ask, and do not follow the move.")]


@pin_app.command("show")
def show(slot: AnySlot = None, config: Config = None, as_json: Json = False) -> None:
    """Show what each slot is pinned to, since when, by whom, why, and the proof that it runs."""
    from failsoft.cli.pin_place import find_place
    from failsoft.cli.pin_tables import look_at_pins, pin_document, print_pins
    from failsoft.cli.pin_targets import check_shown_slot

    place = find_place(config)
    with place.open_store() as store:
        looks = look_at_pins(place, store)
    check_shown_slot(slot, [look.slot for look in looks])
    looks = [look for look in looks if slot in (None, look.slot)]
    if as_json:
        typer.echo(json.dumps({"pins": [pin_document(look) for look in looks]}, indent=2))
    else:
        print_pins(looks)


@pin_app.command("set")
def set_pin(
    slot: Slot,
    version: Annotated[
        str,
        typer.Argument(metavar="VERSION", help="A version of the settings, or of the catalogue."),
    ],
    why: Why,
    swap: SwapOption = "beside",
    accept_unproven: AcceptUnproven = False,
    who: Who = None,
    no_wait: NoWait = False,
) -> None:
    """Move SLOT to VERSION: tried beside the old one, switched only once it has proven itself."""
    from failsoft.cli.pin_move import MoveWish, move_pin
    from failsoft.cli.pin_targets import version_to_set

    wish = MoveWish(
        slot=slot, kind=MoveKind.SET, why=why, who=who, swap=swap, accept_unproven=accept_unproven
    )
    move_pin(wish, lambda place, *_: version_to_set(version, place), waits=not no_wait)


def rollback(
    slot: Slot,
    why: Why,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION",
            help="A version that held the slot before, by name or at least 4 digits of its digest.",
            show_default="the one before",
        ),
    ] = None,
    swap: SwapOption = "beside",
    accept_unproven: AcceptUnproven = False,
    who: Who = None,
    no_wait: NoWait = False,
) -> None:
    """Move SLOT back to a version that held it before; asks nothing, and proves what runs.

    A move that has switched is not waited for: the old engine drains on beside the rollback.
    """
    from failsoft.cli.pin_move import MoveWish, move_pin
    from failsoft.cli.pin_targets import version_to_go_back_to

    wish = MoveWish(
        slot=slot,
        kind=MoveKind.ROLLBACK,
        why=why,
        who=who,
        swap=swap,
        accept_unproven=accept_unproven,
        names_target=to is not None,
    )

    def choose(
        _place: object, moves: Sequence[PinMove], now: PinnedVersion | None
    ) -> PinnedVersion:
        return version_to_go_back_to(slot, to, moves, now=now)

    move_pin(wish, choose, waits=not no_wait)


@pin_app.command("abort")
def abort(
    slot: Slot, who: Who = None, no_wait: NoWait = False, is_orphaned: Orphaned = False
) -> None:
    """Take back the move of SLOT that is under way; refused once it has switched."""
    from failsoft.cli.pin_follow import follow_to_end, tell_abort
    from failsoft.cli.pin_place import check_orphaned, find_place, operator
    from failsoft.cli.pin_targets import check_abortable

    place = find_place(None)
    with place.open_store() as store:
        check_abortable(slot, place, store)
        if is_orphaned:
            check_orphaned(place, store.pins.open_move(slot))
            ended = store.pins.end_orphan(slot, who=who or operator())
            typer.echo(f"pin {slot}: {ended.state.value}: {ended.reason}")
            return
        move = store.pins.wish_abort(slot, who=who or operator())
        if place.supervisor is None:
            typer.echo("noted; no `failsoft up` runs here, the next one takes the move back")
        elif no_wait:
            typer.echo(f"noted; see it with `failsoft pin show {slot}`")
        else:
            tell_abort(follow_to_end(store, move, home=place.home))


@pin_app.command("history")
def history(
    slot: AnySlot = None,
    config: Config = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Moves at most.")] = 20,
    as_json: Json = False,
) -> None:
    """List moves, the newest first: when, from, to, by whom, why, and how each ended."""
    from failsoft.cli.pin_place import find_place
    from failsoft.cli.pin_tables import known_slots, move_document, print_history
    from failsoft.cli.pin_targets import check_shown_slot

    place = find_place(config)
    with place.open_store() as store:
        check_shown_slot(slot, known_slots(place, store))
        moves = store.pins.history(slot, limit=limit)
        pins = store.pins.pins()
    if as_json:
        typer.echo(json.dumps({"moves": [move_document(move) for move in moves]}, indent=2))
    else:
        print_history(moves, pins, store_url=place.store_config.url)


@pin_app.command("follow-file")
def follow_file(slot: Slot, why: Why, who: Who = None, config: Config = None) -> None:
    """Have SLOT, which was moved, follow the settings file again, once that says what is pinned."""
    from failsoft.cli.pin_give_back import give_back
    from failsoft.cli.pin_place import find_place, operator
    from failsoft.cli.pin_targets import check_why
    from failsoft.store.rows import one_line

    reason, place = check_why(why), find_place(config)
    with place.open_store() as store:
        give_back(place, store, slot, who=one_line(who or "") or operator(), why=reason)


@pin_app.command("write")
def write(config: Config = None) -> None:
    """Write the pins that moves decided into the settings file; its comments stay."""
    from failsoft.cli.pin_place import find_place
    from failsoft.cli.pin_write import write_moved_pins

    place = find_place(config)
    with place.open_store() as store:
        pins = store.pins.pins()
    if not write_moved_pins(place, pins):
        raise typer.Exit(1)
