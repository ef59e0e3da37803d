"""Keep control tokens that a caller writes in a message plain text.

``<|im_end|>`` typed by a user would otherwise end their turn and let them speak
as the system. Such strings are wrapped in markers before the chat template
runs; afterwards what is marked is encoded without matching an added token,
and the rest, the template's own control tokens included, as usual. A chat
without control tokens in its messages takes the same path as one long string,
so its ids are exactly those of the tokenizer.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from failsoft.errors import InvalidRequestError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_NONCHARACTERS = [chr(code) for code in range(0xFDD0, 0xFDF0)]
"""Code points that Unicode sets aside for a process's own use: no real text holds them."""


class Markers(NamedTuple):
    """Two characters that no message of the chat holds."""

    start: str
    end: str


def pick_markers(texts: Iterable[str]) -> Markers:
    """Return two noncharacters that appear in none of *texts*.

    Raises:
        InvalidRequestError: The caller's text uses (almost) all of them.
    """
    used = set().union(*map(set, texts))
    free = [char for char in _NONCHARACTERS if char not in used]
    if len(free) < 2:
        raise InvalidRequestError(
            "messages use up the Unicode noncharacters U+FDD0..U+FDEF; remove them",
            param="messages",
        )
    return Markers(free[0], free[1])


class ControlTokens:
    """The control tokens of one tokenizer and template, and how to write them as text.

    Control tokens are the special tokens, and the added tokens that the template
    itself writes (some models register ``<tool_call>`` as an ordinary added token).
    """

    def __init__(self, tokenizer: "Tokenizer", chat_template: str) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder().values()
        control = [
            token.content
            for token in added
            if token.special or (token.content in chat_template and not token.content.isspace())
        ]
        self._control = _any_of(control)
        self._added = _any_of([token.content for token in added])
        self._newline_ids = self._encode("\n")

    def occur_in(self, texts: Iterable[str]) -> bool:
        """Whether a control token is written out in one of *texts*."""
        return any(self._control.search(text) for text in texts)

    def mark(self, text: str, markers: Markers) -> str:
        """Return *text* with each control token between *markers*."""
        return self._control.sub(lambda found: f"{markers.start}{found[0]}{markers.end}", text)

    def encode(self, rendered: str, markers: Markers) -> list[int]:
        """Encode a rendered chat: marked tokens as text, the rest as the tokenizer does.

        A template may cut a string between a token and its marker; such a lone
        marker vanishes, yet still keeps the text on its sides from joining.

        Raises:
            InvalidRequestError: The tokenizer cannot spell a marked token as text.
        """
        edge = (
            f"{markers.start}({self._control.pattern}){markers.end}|[{markers.start}{markers.end}]"
        )
        pieces = re.split(edge, rendered)
        ids = self._encode(pieces[0])
        for index, piece in enumerate(pieces[1:], start=1):
            if not piece:  # a lone marker splits with None in place of its token
                continue
            for part in self._spell(piece) if index % 2 else [piece]:
                ids += self._encode_mid_text(part)
        return ids

    def _spell(self, text: str) -> list[str]:
        """Cut *text* until no part holds an added token; joined they are *text* again."""
        found = self._added.search(text)
        if found is None:
            return [text] if text else []
        if len(found[0]) == 1:
            raise InvalidRequestError(
                f"messages hold {found[0]!r}, which this model can only read as a control token; "
                "remove it",
                param="messages",
            )
        cut = found.start() + 1
        return self._spell(text[:cut]) + self._spell(text[cut:])

    def _encode_mid_text(self, text: str) -> list[int]:
        """Encode *text* as it reads after other text.

        SentencePiece-like tokenizers put a space before the first piece of a
        string: encoding behind a line break, then dropping that, avoids it.
        """
        ids = self._encode("\n" + text)
        head = len(self._newline_ids)
        return ids[head:] if ids[:head] == self._newline_ids else self._encode(text)

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def _any_of(words: list[str]) -> re.Pattern[str]:
    longest_first = sorted((word for word in words if word), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")  # (?!) never matches
