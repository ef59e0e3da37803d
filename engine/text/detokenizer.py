"""Token ids to text, one id at a time, never half a character.

The pieces joined are what ``tokenizer.decode(ids)`` returns, with one exception made on
purpose: a byte-fallback tokenizer decodes a run of byte tokens as garbage *as a whole* when
its end is invalid, while here what was valid when it came stays valid.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

REPLACEMENT = "\ufffd"
"""What a decoder puts for bytes that are no UTF-8, or not yet."""

MAX_PENDING_TOKENS = 8
"""Tokens held back at most while their bytes stay invalid; a character takes four."""


class Detokenizer:
    """Decodes one answer. Not thread-safe.

    Args:
        tokenizer: Whose ids come.
        is_special_shown: Whether special tokens are text too, as the tokenizer writes them.

    A decoder looks at neighbours (a space before a word, bytes of one character),
    so each call decodes a short window: tokens whose text is out already, then
    the pending ones.
    """

    def __init__(self, tokenizer: "Tokenizer", *, is_special_shown: bool = False) -> None:
        self._tokenizer = tokenizer
        self._is_special_shown = is_special_shown
        self._context: list[int] = []
        self._context_text = ""
        self._pending: list[int] = []
        self._num_sent = 0  # characters of the pending text that are out

    def push(self, token_id: int) -> str:
        """Take the next token and return the text that is certain now, often ``""``."""
        self._pending.append(token_id)
        fresh = self._fresh_text(self._pending)
        stable = fresh.rstrip(REPLACEMENT)
        if fresh and len(stable) == len(fresh):
            text = fresh[self._num_sent :]
            self._settle(len(self._pending), len(fresh))
            return text
        if len(self._pending) > MAX_PENDING_TOKENS:
            return self._give_up_on_garbage()
        text = stable[self._num_sent :]
        self._num_sent = max(self._num_sent, len(stable))
        return text

    def flush(self) -> str:
        """Return what is still held: a partial character comes out as U+FFFD, once."""
        fresh = self._fresh_text(self._pending)
        text = fresh[self._num_sent :]
        self._settle(len(self._pending), len(fresh))
        return text

    def _give_up_on_garbage(self) -> str:
        """Send the held tokens up to the last place where no character is cut in two."""
        whole = self._decode(self._pending)
        cut = len(self._pending)
        for end in range(len(self._pending) - 1, 0, -1):
            head, tail = self._decode(self._pending[:end]), self._decode(self._pending[end:])
            if tail and head + tail == whole:  # an empty tail would prove nothing
                cut = end
                break
        fresh = self._fresh_text(self._pending[:cut])
        text = fresh[self._num_sent :]
        self._settle(cut, len(fresh))
        return text

    def _settle(self, num_tokens: int, num_chars: int) -> None:
        """Make the first pending tokens, *num_chars* characters, the new context."""
        self._context = self._pending[:num_tokens]
        self._context_text = self._decode(self._context)
        self._pending = self._pending[num_tokens:]
        self._num_sent = max(0, self._num_sent - num_chars)

    def _fresh_text(self, pending: list[int]) -> str:
        text = self._decode(self._context + pending)
        if text.startswith(self._context_text):
            return text[len(self._context_text) :]
        return self._decode(pending)  # bytes that spoil the run before them

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=not self._is_special_shown)
