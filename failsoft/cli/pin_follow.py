"""Follows a move until it ends, and says what became of it.

The move is the supervisor's: whoever stops following leaves it as it is.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from failsoft.errors import PinError, StoreError
from failsoft.fallback.pins.words import end_words, proof_words, version_words, what_runs_now
from failsoft.pin_records import MoveState, PinMove
from failsoft.run_state import read_supervisor

if TYPE_CHECKING:
    from failsoft.store.store import Store

POLL_S = 0.2
UNTAKEN_S = 15.0
"""A move that nobody took on by then is worth a word."""
GONE_S = 10.0
"""How long a supervisor may be gone, as while it is started again."""
_CTRL_C_EXIT = 130


def follow_to_end(store: "Store", move: PinMove, *, home: Path, is_left: bool = False) -> PinMove:
    """Print each state as it is entered; return the move once it is over.

    Ctrl-C ends the command by exit 130, and the move goes on.

    Args:
        store: Where it is.
        move: It; of one that *is_left* for a rollback only what comes now is told.
        home: Whose supervisor carries it out.
        is_left: Whether its end is the beginning of what the command asked for.

    Raises:
        PinError: Its supervisor has ended.
    """
    num_told = len(move.steps) if is_left else 0
    with leaving_it_to_the_supervisor(move.slot, can_abort=not is_left):
        return Follower(store, move, home=home, tell=tell, num_told=num_told).run()


@contextmanager
def leaving_it_to_the_supervisor(slot: str, *, can_abort: bool) -> Iterator[None]:
    """Have Ctrl-C end the command by exit 130, and say how to go on.

    Args:
        slot: What is moved.
        can_abort: Whether an abort would be taken.
    """
    try:
        yield
    except KeyboardInterrupt:
        back = f", take it back with `failsoft pin abort {slot}`" if can_abort else ""
        tell(f"the move goes on; see it with `failsoft pin show {slot}`{back}")
        raise typer.Exit(_CTRL_C_EXIT) from None


def tell_start(move: PinMove) -> None:
    """Say what was asked."""
    tell(f"pin {move.slot}: from {version_words(move.left)} to {version_words(move.to)}")


def tell_end(move: PinMove) -> None:
    """Print how a move ended.

    Raises:
        PinError: It was not confirmed.
    """
    if move.state is not MoveState.CONFIRMED:
        raise PinError(
            f"pin {move.slot}: {end_words(move)}; it runs {what_runs_now(move)}", slot=move.slot
        )
    for line in proof_words(move):
        tell(f"          {line}")
    typer.echo(f"pin {move.slot} runs {version_words(move.to)}: {end_words(move)}")


def tell_abort(move: PinMove) -> None:
    """Print how a move ended that was to be taken back.

    Raises:
        PinError: It was confirmed all the same.
    """
    line = f"pin {move.slot}: {end_words(move)}; it runs {what_runs_now(move)}"
    if move.state is MoveState.CONFIRMED:
        raise PinError(f"{line}; use `failsoft rollback {move.slot} --why TEXT`", slot=move.slot)
    typer.echo(line)


class Follower:
    """Looks at one move again and again.

    Args:
        store: Where it is.
        move: As it was asked.
        home: Whose supervisor carries it out.
        tell: Given each line.
        num_told: How many of its states are not told any more.
        clock: UTC epoch seconds.
        sleep: Waits.
    """

    def __init__(
        self,
        store: "Store",
        move: PinMove,
        *,
        home: Path,
        tell: Callable[[str], None],
        num_told: int = 0,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._move = move
        self._home = home
        self._tell = tell
        self._clock = clock
        self._sleep = sleep
        self._num_told = num_told
        self._gone_since_s: float | None = None
        self._hints: set[str] = set()

    def run(self) -> PinMove:
        """Return the move once it is over.

        Raises:
            PinError: Its supervisor has ended.
        """
        while True:
            self._look()
            self._tell_steps()
            if self._move.state.is_end:
                return self._move
            self._check_supervisor()
            self._hint_untaken()
            self._sleep(POLL_S)

    def _look(self) -> None:
        try:
            self._move = self._store.pins.move(self._move.move_id) or self._move
        except StoreError as exc:
            self._hint(f"the store cannot be read for now, the move may go on: {exc}")

    def _tell_steps(self) -> None:
        for step in self._move.steps[self._num_told :]:
            since_s = (step.at_ms - self._move.asked_at_ms) / 1000
            self._tell(f"{since_s:7.1f} s  {step.state.value}")
        self._num_told = len(self._move.steps)

    def _check_supervisor(self) -> None:
        if read_supervisor(self._home) is not None:
            self._gone_since_s = None
            return
        now_s = self._clock()
        if self._gone_since_s is None:
            self._gone_since_s = now_s
        if now_s - self._gone_since_s >= GONE_S:
            slot = self._move.slot
            raise PinError(
                f"pin {slot}: `failsoft up` ended while the move was {self._move.state.value}; "
                "start it again, it goes on with the move or puts things back",
                slot=slot,
            )

    def _hint_untaken(self) -> None:
        is_late = self._clock() - self._move.asked_at_ms / 1000 >= UNTAKEN_S
        if is_late and self._move.state is MoveState.ASKED:
            self._hint(
                "no `failsoft up` has taken it on yet; see whether it says something of its store"
            )

    def _hint(self, line: str) -> None:
        if line not in self._hints:
            self._hints.add(line)
            self._tell(line)


def tell(line: str) -> None:
    """Print *line* beside what a command puts out."""
    with suppress(BrokenPipeError):
        typer.echo(line, err=True)
