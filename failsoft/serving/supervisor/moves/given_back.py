"""Notices that an operator gave a moved slot back to the settings file.

The command writes that into the store alone; what runs is what the file says already. Here it is
taken in, so that the next file counts, and no start without the store goes by the old move.
"""

from collections.abc import Callable, Mapping

from failsoft.fallback.pins.words import kind_words
from failsoft.pin_records import MoveKind, PinMove
from failsoft.serving.supervisor.moves.standing import Standing
from failsoft.serving.supervisor.terminal import Tone


class GivenBack:
    """Looks for slots that were given back; one event loop owns it.

    Args:
        standing: What holds here.
        learn: Has the store read again, and what it says taken in.
        say: Tells people.
    """

    def __init__(
        self,
        standing: Standing,
        *,
        learn: Callable[[], None],
        say: Callable[[str, Tone], None],
    ) -> None:
        self._standing = standing
        self._learn = learn
        self._say = say
        self._told: set[str] = set()

    def on_holding(self, holding: Mapping[str, PinMove]) -> None:
        """Take in the move that put each slot's pin where it is, as the store has them now."""
        news = [
            move
            for slot, move in holding.items()
            if slot in self._standing.moved
            and move.kind is MoveKind.FOLLOW_FILE
            and move.move_id not in self._told
        ]
        for move in news:
            self._told.add(move.move_id)
            self._say(
                f"pin {move.slot}: {kind_words(move.kind)} ({move.who}: {move.why})", Tone.PLAIN
            )
        if news:
            self._learn()
