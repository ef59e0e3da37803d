"""The clocks of moves, in seconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRules:
    """How long each part of a move may take; a test has shorter clocks."""

    poll_s: float = 1.0
    """Between two looks for asked moves and for wishes to abort."""
    open_s: float = 10.0
    """How long a start of `failsoft up` waits for the store's pins before it goes by the last
    ones that are known."""
    retry_s: float = 1.0
    """Between two tries of what the store refused."""
    store_s: float = 30.0
    """How long the store may refuse a state before the switch; then the move is taken back."""
    checking_s: float = 900.0
    """Every byte of the target's files is read."""
    settling_s: float = 120.0
    """How long an engine of new settings, or of a pin that went back, may take to replace the one
    at the slot before a move of it is refused."""
    stopping_s: float = 60.0
    starting_s: float = 900.0
    """No download is in it: what is not stored fails in the check."""
    warming_s: float = 180.0
    proving_s: float = 180.0
    smoking_s: float = 180.0
    draining_s: float = 60.0
    hurried_s: float = 5.0
    """How long the engine that has switched may take to say what it is once somebody rolls it
    back; then the pin goes back without it. One that is not ready is not waited for."""
    answer_s: float = 60.0
    """One reply of the new engine."""
    last_words_s: float = 5.0
    """How long the end of a move may take to write when `failsoft up` itself stops."""
