"""The bytes of each token of a tokenizer, as llguidance wants them.

llguidance reads tokenizer files itself, but keeps a second tokenizer for it and takes four
times as long; from plain bytes it builds its table alone. Two families are known: byte-level
(GPT-2, Llama 3, Qwen) and ``▁`` with byte fallback (Llama 2, Gemma). Building holds the
interpreter for 0.1 s (49,000 tokens) to 2 s (262,000), so it is done while a model loads.
"""

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from llguidance import LLTokenizer, TokenizerWrapper

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_PROBES = ('{"name": "Zoë", "n": [1, 2.50, -3e7]}', "  two blanks, ünï 漢字 🎉\n\tand a tab")
"""What the bytes must spell again, a first blank apart."""


class UnknownTokensError(Exception):
    """The tokenizer is of no family whose tokens are known as bytes."""


def build_table(
    tokenizer: "Tokenizer", *, vocab_size: int, eos_token_ids: Iterable[int]
) -> LLTokenizer:
    """Return llguidance's table of *tokenizer*.

    Args:
        tokenizer: The fast tokenizer of the model.
        vocab_size: Width of the logits; ids past the tokenizer's are never allowed.
        eos_token_ids: What ends a reply.

    Raises:
        UnknownTokensError: Its tokens cannot be told as bytes.
    """
    tokens = token_bytes(tokenizer)
    num_known = len(tokens)
    tokens += [b""] * (vocab_size - num_known)
    for text in _PROBES:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        if b"".join(tokens[token] for token in ids).strip(b" ") != text.encode().strip(b" "):
            raise UnknownTokensError("its tokens do not spell what it encodes")
    ends = sorted(token for token in eos_token_ids if token < num_known)
    if not ends:
        raise UnknownTokensError("it has no end-of-sequence token")
    speller = _Speller(tokenizer, tokens, ends)
    wrapper = TokenizerWrapper(speller)
    table = LLTokenizer(wrapper, n_vocab=len(tokens), eos_token=ends)
    speller.table = table
    return table


def token_bytes(tokenizer: "Tokenizer") -> list[bytes]:
    """Return the bytes of each token id; empty where there is none.

    Raises:
        UnknownTokensError: The decoder is of neither family.
    """
    kinds = _decoder_kinds(tokenizer)
    to_bytes: Callable[[str], bytes]
    if "ByteLevel" in kinds:
        to_bytes = partial(_level_bytes, _byte_of_char())
    elif "ByteFallback" in kinds or "Metaspace" in kinds:
        to_bytes = _fallback_bytes
    else:
        raise UnknownTokensError(f"its decoder is {'+'.join(kinds) or 'missing'}")
    vocab: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    tokens = [b""] * (max(vocab.values()) + 1)
    added = tokenizer.get_added_tokens_decoder()
    try:
        for word, token in vocab.items():
            tokens[token] = word.encode() if token in added else to_bytes(word)
    except KeyError as exc:
        raise UnknownTokensError(f"a token holds {exc}, which stands for no byte") from exc
    return tokens


class _Speller:
    """How the tokenizer would spell a text that the grammar forces; llguidance calls it.

    A model reads its own spelling best. Where the tokenizer would add or change something,
    the longest tokens that fit are as good.
    """

    bos_token_id = None

    def __init__(self, tokenizer: "Tokenizer", tokens: list[bytes], ends: list[int]) -> None:
        self.tokens = tokens
        self.eos_token_id = ends[0]
        added = tokenizer.get_added_tokens_decoder()
        self.special_token_ids = [token for token, entry in added.items() if entry.special]
        self.table: LLTokenizer | None = None
        self._tokenizer = tokenizer

    def __call__(self, text: bytes | str) -> list[int]:
        raw = text.encode() if isinstance(text, str) else text
        ids = self._tokenizer.encode(raw.decode("utf-8", "replace"), add_special_tokens=False).ids
        if b"".join(self.tokens[token] for token in ids) == raw:
            return list(ids)
        return self.table.greedy_tokenize(raw.decode()) if self.table else []


def _decoder_kinds(tokenizer: "Tokenizer") -> list[str]:
    if tokenizer.decoder is None:
        return []
    state = json.loads(tokenizer.decoder.__getstate__())
    return [entry["type"] for entry in (state, *state.get("decoders", ()))]


def _level_bytes(table: dict[str, int], word: str) -> bytes:
    return bytes(table[char] for char in word)


def _fallback_bytes(word: str) -> bytes:
    is_byte = len(word) == 6 and word.startswith("<0x") and word.endswith(">")
    return bytes.fromhex(word[3:5]) if is_byte else word.replace("▁", " ").encode()


def _byte_of_char() -> dict[str, int]:
    """Return GPT-2's alphabet: printable bytes stand for themselves, the others from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    table.update((chr(0x100 + place), byte) for place, byte in enumerate(others))
    return table
