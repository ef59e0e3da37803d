"""A home with a store and a stand-in for the `failsoft up` that carries moves out."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from failsoft.config.schema import load_settings
from failsoft.config.settings import Settings
from failsoft.fallback.discovery import RunningEngine, publish_engine
from failsoft.pin_records import MoveState, PinMove
from failsoft.run_state import ChildState, SupervisorState, withdraw_supervisor, write_supervisor
from failsoft.serving.supervisor.accepted import keep_copy, with_absolute_paths
from failsoft.store import Store
from tests.fallback.pins.moves import BEFORE_SWITCH, DIGESTS, ask_for, carry_out, version_of

FILE = """# The pins of this test.
[store]
url = "sqlite:///failsoft.db"
[versions.v1]
source = "file:models/v1"
[versions.v2]
source = "file:models/v2"
[versions.v3]
source = "file:models/v3"
[pins]
primary = "v1"  # the first one
spare = "v1"
[endpoints.primary]
pin = "primary"
[ladders.chat]
rungs = ["primary", "cache"]
"""
PROOF = {
    "evidence": {"words": "it held this slot before", "accepted": False},
    "pid": 4711,
    "digest": DIGESTS["v2"],
    "smoke": [{"num_chars": 12, "finish_reason": "stop", "version_digest": DIGESTS["v2"]}],
    "seconds": {"checking": 1.25},
}


class PinHome:
    """A folder of failsoft in which v1 is pinned to the slot primary, and was seen to run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "failsoft.toml"
        self.file.write_text(FILE)
        self.store = Store(self.settings.store)
        self.store.pins.note_file_pin("primary", version_of(self.settings, "v1", digest=None))
        self.store.pins.note_digest("primary", "v1", DIGESTS["v1"])

    @property
    def settings(self) -> Settings:
        """The file's, paths absolute."""
        return with_absolute_paths(load_settings(self.file), base=self.folder)

    def publish_engine(self, name: str) -> None:
        """Say that an engine of the version called *name* runs."""
        publish_engine(
            self.folder,
            RunningEngine(
                slot="primary",
                url="http://127.0.0.1:1/v1",
                pid=os.getpid(),
                version=name,
                version_digest=DIGESTS[name],
            ),
        )

    def publish_supervisor(self, *children: ChildState, unlike_file: tuple[str, ...] = ()) -> None:
        """Say that a `failsoft up` runs by the file as it is now."""
        keep_copy(self.settings, home=self.folder)
        write_supervisor(
            self.folder,
            SupervisorState(
                pid=os.getpid(),
                started_at_ms=0,
                settings=str(self.file),
                api_url="http://127.0.0.1:8000/v1",
                ops_url="http://127.0.0.1:8001",
                children=children,
                unlike_file=unlike_file,
            ),
        )

    def withdraw_supervisor(self) -> None:
        """Have none run."""
        withdraw_supervisor(self.folder, os.getpid())

    @contextmanager
    def supervised(
        self, work: "Callable[[PinHome, PinMove], None] | None" = None
    ) -> Iterator[None]:
        """Have every asked move carried out by *work*, to its confirmation if there is none."""
        self.publish_supervisor()
        is_over = threading.Event()
        thread = threading.Thread(target=self._run, args=(work or confirm, is_over))
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join(20)
            self.withdraw_supervisor()

    def _run(self, work: "Callable[[PinHome, PinMove], None]", is_over: threading.Event) -> None:
        while not is_over.wait(0.01):
            for move in self.store.pins.open_moves():
                claimed = self.store.pins.claim(move.move_id, owner="stand-in")
                if claimed is not None:
                    work(self, claimed)


def confirm(home: PinHome, move: PinMove) -> None:
    """Carry *move* out to its confirmation."""
    pins = home.store.pins
    told = DIGESTS[move.to.name]
    to = version_of(home.settings, move.to.name) if move.to.digest is None else move.to
    for state in BEFORE_SWITCH:
        move = pins.advance(move, state, to=to if state is MoveState.STARTING else None)
    move = pins.switch(move, proof={**PROOF, "digest": told})
    pins.end(pins.advance(move, MoveState.DRAINING), MoveState.CONFIRMED)


def fail(home: PinHome, move: PinMove) -> None:
    """Have *move* fail in its check."""
    checking = home.store.pins.advance(move, MoveState.CHECKING)
    reason = "checking: its files do not verify; look with `failsoft versions verify`"
    home.store.pins.end(checking, MoveState.FAILED, reason=reason)


def wait_for_abort(home: PinHome, move: PinMove) -> None:
    """Have *move* start until somebody takes it back."""
    pins = home.store.pins
    move = pins.advance(pins.advance(move, MoveState.CHECKING), MoveState.STARTING)
    until_s = time.monotonic() + 20
    while time.monotonic() < until_s:
        now = pins.move(move.move_id)
        assert now is not None
        if now.abort_by is not None:
            pins.end(now, MoveState.ABORTED, reason=f"{now.abort_by} took it back")
            return
        time.sleep(0.01)


class Done(NamedTuple):
    """What a command did."""

    code: object
    out: str
    err: str


Run = Callable[..., Done]


def prove(home: PinHome, *names: str) -> None:
    """Have each version hold the slot once."""
    for name in names:
        carry_out(home.store, ask_for(version_of(home.settings, name)))
