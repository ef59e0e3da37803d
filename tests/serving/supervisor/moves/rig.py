"""A running ``failsoft up`` over fake children whose pins are moved, and what a test asks of it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from failsoft.config.settings import StoreConfig
from failsoft.fallback.discovery import EngineFinder, RunningEngine
from failsoft.fallback.pins.pinned import pinned_version
from failsoft.pin_records import MoveAsk, MoveKind, MoveState, PinMove, PinnedVersion
from failsoft.serving.supervisor.accepted import with_absolute_paths
from failsoft.store.store import Store
from tests.serving.supervisor.builders import read
from tests.serving.supervisor.rig import ONE_ENGINE, Up, running_up

ALL = ("front", "ops", "primary")


class Pins:
    """The pins of one `Up` as an operator moves and sees them."""

    def __init__(self, up: Up, store: Store) -> None:
        self.up = up
        self.store = store
        self.finder = EngineFinder(up.home)

    def version(self, name: str, settings: str = ONE_ENGINE) -> PinnedVersion:
        """What *settings* mean by *name*."""
        folder = self.up.folder / "elsewhere"
        folder.mkdir(exist_ok=True)
        versions = with_absolute_paths(read(folder, settings), base=self.up.folder).versions
        pinned = pinned_version(name, versions)
        assert pinned is not None
        return pinned

    def ask(self, name: str = "v3", **changes: Any) -> PinMove:
        """Ask for a move of the primary to the version called *name*."""
        fields: dict[str, Any] = {
            "slot": "primary",
            "kind": MoveKind.SET,
            "to": self.version(name),
            "who": "ann",
            "why": "try it",
            "accept_unproven": True,
        }
        return self.store.pins.ask(MoveAsk(**{**fields, **changes}))

    def roll_back(self, first: PinMove, name: str = "v1", **changes: Any) -> PinMove:
        """Have a rollback to the version called *name* follow *first*, which has switched."""
        fields: dict[str, Any] = {
            "slot": "primary",
            "kind": MoveKind.ROLLBACK,
            "to": self.version(name),
            "who": "bob",
            "why": "callers complain",
        }
        left = self.store.pins.ask_rollback(first, MoveAsk(**{**fields, **changes}))
        assert left is not None
        return left

    def after(self, first: PinMove) -> PinMove | None:
        """What followed *first*; None where nothing was to."""
        rollback = self.now(first).rollback
        return None if rollback is None else self.store.pins.move(rollback.move_id or "")

    def now(self, move: PinMove) -> PinMove:
        """The move as it is now."""
        found = self.store.pins.move(move.move_id)
        assert found is not None
        return found

    def wait(self, move: PinMove, state: MoveState) -> PinMove:
        """Wait until *move* is in *state*, or has ended, which is told then."""
        self.up.wait_for(lambda: self.now(move).state is state or self.now(move).state.is_end)
        found = self.now(move)
        assert found.state is state, (found, self.up.said)
        return found

    def move(self, name: str = "v3", **changes: Any) -> PinMove:
        """Move the primary and return how that ended."""
        return self.end_of(self.ask(name, **changes))

    def end_of(self, move: PinMove) -> PinMove:
        """Wait for the end of *move*."""
        self.up.wait_for(lambda: self.now(move).state.is_end)
        return self.now(move)

    def serving(self) -> tuple[str, int]:
        """The version and the process that the primary's callers find, ready to answer."""

        def found() -> RunningEngine | None:
            engine, child = self.finder.find("primary"), self.up.child("primary")
            if child is None or child.phase != "running" or isinstance(engine, str):
                return None
            return engine if engine.pid == child.pid else None

        seen: list[RunningEngine] = []

        def has_found() -> bool:
            if (engine := found()) is not None:
                seen.append(engine)
            return bool(seen)

        self.up.wait_for(has_found)
        engine = seen[-1]
        return engine.version, engine.pid

    def stall(self, version: str, state: MoveState) -> Path:
        """Have moves to *version* wait in *state* until the file is removed."""
        path = self.up.folder / f"{version}.stall"
        path.write_text(state.value)
        return path


@contextlib.contextmanager
def moving_up(folder: Path, **options: Any) -> Iterator[Pins]:
    """Yield the pins of a running supervisor with one engine, which is ready."""
    with (
        running_up(folder, **{"settings": ONE_ENGINE, **options}) as up,
        open_store(folder) as store,
    ):
        up.wait_running(*ALL)
        pins = Pins(up, store)
        up.wait_for(lambda: has_digest(store))
        yield pins


def open_store(folder: Path) -> Store:
    """Open the store that the supervisor in *folder* has."""
    return Store(StoreConfig(url=f"sqlite:///{folder / 'failsoft.db'}"))


def has_digest(store: Store) -> bool:
    """Whether the primary's engine has told what it is."""
    pin = store.pins.pins().get("primary")
    return pin is not None and pin.version.digest is not None
