"""Tells of a move: lines for people, events for pages and alerts."""

from failsoft.fallback.pins.words import took_s
from failsoft.pin_records import MoveState, PinMove, WantedRollback
from failsoft.serving.supervisor.keeper import Surroundings
from failsoft.serving.supervisor.terminal import Tone

_KINDS = {
    MoveState.CONFIRMED: "pin.confirmed",
    MoveState.FAILED: "pin.failed",
    MoveState.ABORTED: "pin.aborted",
    MoveState.UNDONE: "pin.undone",
}


class MoveNews:
    """Tells of one move.

    Args:
        move: It, as it was taken on.
        around: Who is told.
    """

    def __init__(self, move: PinMove, around: Surroundings) -> None:
        self._move = move
        self._around = around
        left = "nothing" if move.left is None else move.left.name
        self._path = f"from {left} to {move.to.name}"

    def begin(self) -> None:
        """It is taken on."""
        move = self._move
        self.say(f"{move.who} moves it {self._path} ({move.kind}): {move.why}", Tone.PLAIN)
        self._record("pin.asked", accept_unproven=str(move.accept_unproven).lower())

    def enter(self, state: MoveState) -> None:
        """It is in *state* now."""
        self.say(f"{state.value} …", Tone.DIM)

    def switched(self) -> None:
        """The pin points at the target."""
        self.say(f"switched {self._path}", Tone.GOOD)
        self._record("pin.switched")

    def hurry(self, wanted: WantedRollback) -> None:
        """Somebody rolls it back, so that nothing is waited for any more."""
        ask = wanted.ask
        self.say(
            f"{ask.who} rolls it back to {ask.to.name}: {ask.why}; what still drains goes on "
            "beside that",
            Tone.WARNING,
        )

    def end(self, move: PinMove, *, unproven: bool) -> None:
        """It is over.

        Args:
            move: As it ended.
            unproven: Whether its target was taken without evidence.
        """
        if move.state is MoveState.CONFIRMED:
            after_s = took_s(move, now_ms=move.asked_at_ms)
            self.say(f"confirmed {self._path} after {after_s:.1f} s", Tone.GOOD)
        else:
            self.say(f"{move.state.value}, it runs {self._stays}: {move.reason}", Tone.BAD)
        was_in = move.steps[-2].state.value if len(move.steps) > 1 else None
        self._record(
            _KINDS[move.state],
            was_in=was_in,
            unproven=str(unproven).lower(),
            reason=move.reason,
        )

    def say(self, words: str, tone: Tone) -> None:
        """Tell people of this pin."""
        self._around.say(f"pin {self._move.slot}: {words}", tone)

    @property
    def _stays(self) -> str:
        left = self._move.left
        return "what it ran" if left is None else f"{left.name} as before"

    def _record(self, kind: str, **detail: str | None) -> None:
        move = self._move
        self._around.record(
            kind,
            move.slot,
            move=move.move_id,
            who=move.who,
            how=move.kind.value,
            left=None if move.left is None else move.left.name,
            to=move.to.name,
            why=move.why,
            **detail,
        )
