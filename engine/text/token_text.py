r"""The text and the bytes of single tokens, as log probabilities show them.

A token may be a part of a character. Its bytes are known all the same: byte-level
tokenizers spell each byte as a printable character (GPT-2's table), byte-fallback ones name
it ``<0xE2>``. Text that is no UTF-8 by itself is shown as ``bytes:\xe2\x82``, as OpenAI does:
U+FFFD would make different tokens look the same.
"""

import json
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE = "\u2581"
"""SentencePiece's space."""


class TokenText(NamedTuple):
    """One token, shown alone."""

    text: str
    data: bytes | None
    """Its UTF-8, maybe a part of a character; None for an id that the tokenizer lacks."""


class TokenTexts:
    """Shows tokens of one tokenizer; safe on several threads."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._added = {
            number: token.content for number, token in tokenizer.get_added_tokens_decoder().items()
        }
        kinds = _decoder_kinds(tokenizer)
        self._is_byte_level = "ByteLevel" in kinds
        self._has_byte_tokens = "ByteFallback" in kinds
        self._shown: dict[int, TokenText] = {}

    def of(self, token_id: int) -> TokenText:
        """Return the token's text and bytes."""
        shown = self._shown.get(token_id)
        if shown is None:
            shown = self._shown[token_id] = self._show(token_id)
        return shown

    def _show(self, token_id: int) -> TokenText:
        piece = self._added.get(token_id) or self._tokenizer.id_to_token(token_id)
        if piece is None:  # logits may be wider than the vocabulary
            return TokenText(f"token_id:{token_id}", None)
        data = piece.encode() if token_id in self._added else self._bytes_of(piece, token_id)
        try:
            return TokenText(data.decode(), data)
        except UnicodeDecodeError:
            return TokenText("bytes:" + "".join(f"\\x{byte:02x}" for byte in data), data)

    def _bytes_of(self, piece: str, token_id: int) -> bytes:
        if self._is_byte_level and all(char in _BYTE_OF for char in piece):
            return bytes(_BYTE_OF[char] for char in piece)
        if self._has_byte_tokens and (byte := _BYTE_TOKEN.fullmatch(piece)):
            return bytes([int(byte[1], 16)])
        if _SPACE in piece:
            return piece.replace(_SPACE, " ").encode()
        return self._tokenizer.decode([token_id], skip_special_tokens=False).encode()


def _byte_table() -> dict[str, int]:
    """Return GPT-2's printable character for each byte, turned round.

    Printable Latin-1 bytes stand for themselves, the others for U+0100 and on, in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(0x100 + number): byte for number, byte in enumerate(others)}


_BYTE_OF = _byte_table()


def _decoder_kinds(tokenizer: "Tokenizer") -> set[str]:
    """Return the names of the tokenizer's decoders, those inside a sequence included."""
    if tokenizer.decoder is None:
        return set()
    state = json.loads(tokenizer.decoder.__getstate__())
    return {part.get("type") for part in [state, *state.get("decoders", ())]}
