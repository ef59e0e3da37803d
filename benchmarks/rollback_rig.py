"""A real ``failsoft up`` with one rung whose pin is moved, and what its store says of moves.

One rung, no cache: what that rung does not answer is a failed call. Its clocks are those that a
ladder has by itself.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.up_session import STOP_S, UpSession, running_up, wait_for
from failsoft.config.settings import StoreConfig
from failsoft.fallback.discovery import EngineFinder, RunningEngine
from failsoft.pin_records import MoveState, PinMove
from failsoft.store import Store

V1, V2 = "smollm2-135m-instruct", "gemma-3-270m"
SLOT = "primary"
MOVE_S = 300.0
_SETTINGS = f"""
[pins]
{SLOT} = "{V1}"
[endpoints.{SLOT}]
pin = "{SLOT}"
[ladders.chat]
rungs = ["{SLOT}"]
"""


@dataclass(frozen=True, slots=True)
class Moving:
    """One running ``failsoft up`` and its store."""

    up: UpSession
    store: Store

    def cli(self, *words: str) -> "subprocess.Popen[str]":
        """Start one of failsoft's commands on this folder."""
        return subprocess.Popen(
            [sys.executable, "-m", "failsoft", *words],
            env={**os.environ, "FAILSOFT_HOME": str(self.up.home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def ask_set(self, version: str, *words: str) -> "subprocess.Popen[str]":
        """Ask for a move to *version*, as an operator who takes it unproven."""
        return self.cli("pin", "set", SLOT, version, "--why", "proof", "--accept-unproven", *words)

    def newest(self) -> PinMove:
        """Return the move that was asked for last."""
        return self.store.pins.history(SLOT, limit=1)[0]

    def wait_new(self, after: PinMove | None) -> PinMove:
        """Return the move that was asked for after *after*."""

        def find() -> PinMove | None:
            move = self.newest()
            return None if after is not None and move.move_id == after.move_id else move

        return wait_for(find, MOVE_S, "a move")

    def wait_state(self, move: PinMove, state: MoveState) -> PinMove:
        """Return *move* once it is in *state*, or past it."""
        until_s = time.monotonic() + MOVE_S
        while time.monotonic() < until_s:
            now = self.now(move)
            if now.state.is_end or any(step.state is state for step in now.steps):
                return now
            time.sleep(0.002)
        raise RuntimeError(f"waited {MOVE_S:g} s for {state.value}")

    def wait_end(self, move: PinMove) -> PinMove:
        """Return *move* once it is over."""

        def find() -> PinMove | None:
            now = self.now(move)
            return now if now.state.is_end else None

        return wait_for(find, MOVE_S, "the end of a move")

    def now(self, move: PinMove) -> PinMove:
        """Return *move* as it is now."""
        found = self.store.pins.move(move.move_id)
        assert found is not None, "moves are never deleted"
        return found

    def serving(self) -> RunningEngine:
        """Return the engine that callers are sent to, once one runs."""

        def find() -> RunningEngine | None:
            engine = EngineFinder(self.up.home).find(SLOT)
            return engine if isinstance(engine, RunningEngine) else None

        return wait_for(find, MOVE_S, "an engine")

    def candidate_pid(self) -> int:
        """Return the process on trial, once there is one."""

        def find() -> int | None:
            children = {child.name: child for child in self.up.state().children}
            new = children.get(f"{SLOT}.new")
            return None if new is None else new.pid

        return wait_for(find, MOVE_S, "an engine on trial")


@contextmanager
def moving_up(extra: str = "", *, folder: Path | None = None) -> Iterator[Moving]:
    """Yield a running ``failsoft up`` whose first pin is V1.

    Args:
        extra: More of its settings.
        folder: Where settings, store and home are, for one after another on the same; None
            makes one for this session alone.
    """
    _store_target()
    with tempfile.TemporaryDirectory() as made:
        place = folder or Path(made)
        path = place / "failsoft.toml"
        path.write_text(_SETTINGS + extra)
        with running_up("--config", str(path), slots=(SLOT,), folder=place) as up:
            store = Store(StoreConfig(url=f"sqlite:///{place / 'failsoft.db'}"))
            try:
                moving = Moving(up, store)
                wait_for(lambda: _has_digest(store), 60, "the engine's digest")
                yield moving
            finally:
                store.close()


@cache
def _store_target() -> None:
    """See that V2 is stored, as an operator must before a pin moves to it."""
    subprocess.run(
        [sys.executable, "-m", "failsoft", "models", "add", V2], capture_output=True, check=True
    )


def _has_digest(store: Store) -> bool | None:
    pin = store.pins.pins().get(SLOT)
    return True if pin is not None and pin.version.digest is not None else None


def kill_up(up: UpSession) -> None:
    """Kill the supervisor; what it started ends by itself."""
    up.process.send_signal(signal.SIGKILL)
    up.process.wait(STOP_S)
