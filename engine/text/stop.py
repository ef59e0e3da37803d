"""Stop strings: cut a streamed text at the first one, and never send a part of it.

Works on text, so token boundaries do not matter. The first stop string is the
one that is complete first, as if the text came one character at a time; so the
cut does not depend on how the text is split into deltas either.
"""

from collections.abc import Iterable


class StopStrings:
    """Watches one answer for its stop strings. Not thread-safe.

    Args:
        stops: Strings to stop at; empty ones are the caller's fault and refused earlier.
        is_shown: Whether the stop string itself is let through at the end.
    """

    def __init__(self, stops: Iterable[str], *, is_shown: bool = False) -> None:
        self._is_shown = is_shown
        self._stops = tuple(dict.fromkeys(stops))
        self._longest = max((len(stop) for stop in self._stops), default=0)
        self._held = ""
        self.is_matched = False
        """Whether a stop string came; from then on nothing is let through."""

    def push(self, delta: str) -> str:
        """Take text and return what can be sent: all but the start of a possible stop."""
        if self.is_matched or not self._stops:
            return "" if self.is_matched else delta
        text = self._held + delta
        cut = self._find(text)
        if cut is not None:
            self.is_matched, self._held = True, ""
            return text[:cut]
        keep = self._num_held(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """Return what was held back, now that no more text comes."""
        text, self._held = self._held, ""
        return text

    def _find(self, text: str) -> int | None:
        """Return where to cut *text* for the stop string that ends first in it."""
        ends = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        return min(ends)[0 if self._is_shown else 1] if ends else None

    def _num_held(self, text: str) -> int:
        """Return the length of the longest tail of *text* that may become a stop string."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            tail = text[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
