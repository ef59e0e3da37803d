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
        self._known: set[str] = set()
        self._has_looked = False

    def on_holding(self, holding: Mapping[str, PinMove]) -> None:
        """Take in the move that put each slot's pin where it is, as the store has them now."""
        back = [move for move in holding.values() if move.kind is MoveKind.FOLLOW_FILE]
        news = [move for move in back if move.move_id not in self._known]
        self._known.update(move.move_id for move in news)
        moved = self._standing.moved
        for move in news:
            # At the first look: of before this start. Later one may have been read already.
            if self._has_looked or move.slot in moved:
                words = f"{kind_words(move.kind)} ({move.who}: {move.why})"
                self._say(f"pin {move.slot}: {words}", Tone.PLAIN)
        self._has_looked = True
        if any(move.slot in moved for move in news):
            self._learn()
