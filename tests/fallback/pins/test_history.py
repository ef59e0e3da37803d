"""What the moves of a slot amount to, worked out without any store."""

from dataclasses import replace
from itertools import count

import pytest

from failsoft.config.settings import Settings
from failsoft.config.versions import VersionSettings
from failsoft.fallback.pins.history import (
    held_versions,
    pin_differences,
    rollback_target,
    version_stack,
    was_confirmed,
)
from failsoft.fallback.pins.pinned import is_same_version, pinned_version, settings_of
from failsoft.pin_records import MoveKind, MoveState, MoveStep, Pin, PinMove, PinnedVersion
from tests.fallback.pins.moves import DIGESTS, version_of

TABLES = {name: VersionSettings(source=f"file:/models/{name}") for name in ("v1", "v2", "v3")}
SETTINGS = Settings(versions=TABLES, pins={"primary": "v1"})


def history(*steps: str) -> list[PinMove]:
    """Return moves, the newest first: ``file v1``, ``set v2``, ``rollback v1``, ``failed v3``."""
    ids, held, moves = count(), None, []
    for step in steps:
        kind, name = step.split()
        state = MoveState.FAILED if kind == "failed" else MoveState.CONFIRMED
        to = version_of(SETTINGS, name)
        if kind == "file":
            to = replace(to, digest=None)  # no engine has run yet
        moves.append(
            PinMove(
                move_id=f"{next(ids):08d}",
                slot="primary",
                kind=MoveKind.SET if kind == "failed" else MoveKind(kind),
                left=held,
                to=to,
                who="ann",
                why="a reason",
                swap="beside",
                accept_unproven=False,
                state=state,
                steps=(MoveStep(state=state, at_ms=0),),
                ended_at_ms=0,
                owner=None,
                abort_by=None,
                reason=None,
                proof_json=None,
            )
        )
        if state is MoveState.CONFIRMED:
            held = version_of(SETTINGS, name)
    return moves[::-1]


@pytest.mark.parametrize(
    ("steps", "stack", "target"),
    [
        ([], [], None),
        (["file v1"], ["v1"], None),
        (["file v1", "set v2"], ["v1", "v2"], "v1"),
        (["file v1", "set v2", "rollback v1"], ["v1"], None),
        (["file v1", "set v2", "set v3", "rollback v2"], ["v1", "v2"], "v1"),
        (["file v1", "set v2", "set v3", "rollback v1"], ["v1"], None),
        (["file v1", "set v2", "rollback v1", "set v3"], ["v1", "v3"], "v1"),
        (["file v1", "set v2", "rollback v1", "rollback v2"], ["v1", "v2"], "v1"),
        (["file v1", "set v2", "set v1"], ["v1", "v2", "v1"], "v2"),
        (["file v1", "set v2", "automatic v1"], ["v1"], None),
        (["file v1", "set v2", "failed v3"], ["v1", "v2"], "v1"),
        (["file v1", "file v2"], ["v1", "v2"], "v1"),
        (["set v2"], ["v2"], None),
    ],
)
def test_a_move_pushes_and_a_rollback_pops(
    steps: list[str], stack: list[str], target: str | None
) -> None:
    """So a rollback of a rollback does not bring the bad version back by itself."""
    moves = history(*steps)

    found = rollback_target(moves)

    assert [version.name for version in version_stack(moves)] == stack
    assert (found and found.name) == target
    assert found is None or found.digest == DIGESTS[found.name]


def test_the_version_that_the_file_pinned_is_proven_once_something_else_was_moved_in() -> None:
    """It has no move of its own, but its engine told the digest."""
    moves = history("file v1", "set v2", "failed v3")

    proven = [name for name in DIGESTS if was_confirmed(moves, version_of(SETTINGS, name))]

    assert proven == ["v1", "v2"]
    assert not was_confirmed(moves, replace(version_of(SETTINGS, "v1"), digest=None))
    assert [version.name for version in held_versions(moves)] == ["v2", "v1"]


def test_one_name_with_another_meaning_is_another_version() -> None:
    """The digest tells them apart; where there is none, the table does."""
    old = version_of(SETTINGS, "v1")
    table = VersionSettings(source="file:/models/v1", dtype="int8")
    new = pinned_version("v1", {"v1": table})
    assert new is not None

    assert not is_same_version(old, new)
    assert not is_same_version(old, replace(new, digest="f" * 64))
    assert is_same_version(old, replace(new, digest=old.digest))
    assert settings_of(new) == table


def test_a_new_price_is_no_new_version() -> None:
    """It changes no answer."""
    free = version_of(SETTINGS, "v1")
    table = (
        '{"price": {"input_per_mtok": 1.0, "output_per_mtok": 2.0}, "source": "file:/models/v1"}'
    )
    priced = PinnedVersion(name="v1", settings_json=table)
    assert settings_of(priced) is not None

    assert is_same_version(free, replace(priced, settings_json=free.settings_json))
    assert is_same_version(replace(free, digest=None), priced)


def test_a_table_of_a_later_failsoft_is_not_guessed_at() -> None:
    """It keeps its name and its digest."""
    unknown = PinnedVersion(name="v9", settings_json='{"source": "file:/x", "warp": 9}')

    assert settings_of(unknown) is None
    assert settings_of(replace(unknown, settings_json="{")) is None
    assert is_same_version(unknown, replace(unknown))


def pin(name: str, *, is_moved: bool = True) -> Pin:
    """Return the pin of the slot primary."""
    version = version_of(SETTINGS, name)
    return Pin(slot="primary", version=version, is_moved=is_moved, move_id="1", since_ms=0)


def test_where_store_and_file_differ_the_line_names_who_why_and_both_ways_out() -> None:
    """An operator who finds it weeks later must not have to search."""
    (move, _) = history("file v1", "set v2")

    (line,) = pin_differences(SETTINGS, {"primary": pin("v2")}, {"1": move})

    assert line.startswith("pin primary: v2 is pinned, the settings file says v1 (since 1970-01-01")
    assert "by ann: a reason" in line
    assert "`failsoft pin write`" in line
    assert "`failsoft pin set primary v1 --why TEXT`" in line


def test_the_same_name_with_another_table_differs_too() -> None:
    """The file's version was changed under its name after the move."""
    changed = {"v1": VersionSettings(source="file:/models/other")}

    (line,) = pin_differences(replace(SETTINGS, versions=changed), {"primary": pin("v1")})

    assert "the settings file now means another by it" in line


@pytest.mark.parametrize(
    "pins", [{}, {"primary": pin("v1")}, {"primary": pin("v2", is_moved=False)}]
)
def test_where_they_agree_nothing_is_said(pins: dict[str, Pin]) -> None:
    """A pin that follows the file is about to be what the file says."""
    assert pin_differences(SETTINGS, pins) == []
