"""When the next token of one attempt is due: its first-token clock, then its gap clock.

Knows nothing of bytes or replies. Units: monotonic seconds.
"""

from collections.abc import Callable

from failsoft.fallback.deadline import Clocks


class TokenClock:
    """Runs from the attempt's start to its last token.

    Args:
        clocks: What the attempt may take.
        clock: Monotonic seconds.
    """

    __slots__ = (
        "_clock",
        "_clocks",
        "_handed_s",
        "_token_s",
        "is_idle_talk",
        "started_s",
        "ttft_s",
    )

    def __init__(self, clocks: Clocks, clock: Callable[[], float]) -> None:
        self._clocks = clocks
        self._clock = clock
        self.started_s = clock()
        self._token_s: float | None = None
        """When a token last came, the time that the caller took since then not counted."""
        self._handed_s = self.started_s
        self.is_idle_talk = False
        """Whether something came since the last token, and none of it was a token."""
        self.ttft_s: float | None = None
        """Seconds to the first token; None before it."""

    @property
    def has_token(self) -> bool:
        """Whether any token came."""
        return self._token_s is not None

    @property
    def due_s(self) -> float:
        """When the next token must be there."""
        if self._token_s is None:
            return self.started_s + self._clocks.first_token_s
        return self._token_s + self._clocks.gap_s

    def ask(self) -> float:
        """The caller wants more: from now on it is the endpoint that takes time; return now.

        A caller who reads slowly must not be taken for an endpoint that is silent, so its own
        time is no part of a gap.
        """
        now_s = self._clock()
        if self._token_s is not None:
            self._token_s += now_s - self._handed_s
        return now_s

    def mark_token(self) -> None:
        """A token came, and what is there goes to the caller now."""
        self._token_s = self._handed_s = self._clock()
        self.is_idle_talk = False
        if self.ttft_s is None:
            self.ttft_s = self._token_s - self.started_s

    def mark_idle(self) -> None:
        """What is no token came, and goes to the caller now."""
        self._handed_s, self.is_idle_talk = self._clock(), True
