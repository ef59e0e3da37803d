"""Tokens as bytes: both families, and what is of neither."""

from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models

from failsoft.engine.structured.token_table import UnknownTokensError, build_table, token_bytes
from tests.engine.tiny_tokenizer import byte_fallback_tokenizer, byte_level_tokenizer, token_id


@pytest.mark.parametrize("tokenizer", [byte_level_tokenizer(), byte_fallback_tokenizer()])
def test_the_bytes_of_the_tokens_are_the_bytes_of_the_text(tokenizer: Tokenizer) -> None:
    """Whatever the characters; a blank that the tokenizer puts in front is its own."""
    text = "hello \u00fc 漢字 🎉 x"
    tokens = token_bytes(tokenizer)

    ids = tokenizer.encode(text, add_special_tokens=False).ids

    assert b"".join(tokens[token] for token in ids).lstrip(b" ") == text.encode()


def test_special_tokens_are_no_text() -> None:
    """A grammar of free text must not let a control token through, however it is spelt."""
    tokenizer = byte_level_tokenizer()
    end = token_id(tokenizer, "<|im_end|>")
    table = build_table(tokenizer, vocab_size=400, eos_token_ids=[end, 399])

    assert table.is_special_token(token_id(tokenizer, "<|im_start|>"))
    assert list(table.eos_tokens) == [end]
    assert table.vocab_size == 400


def test_the_forced_text_is_spelt_as_the_model_reads_it() -> None:
    """Llama's tokenizer puts a blank before a text, which a forced text must not get."""
    tokenizer = byte_fallback_tokenizer()
    table = build_table(tokenizer, vocab_size=400, eos_token_ids=[2])

    ids = table.tokenize_str("the")

    assert table.decode_bytes(ids) == b"the"


@pytest.mark.parametrize(
    ("decoder", "reason"), [(decoders.WordPiece(), "WordPiece"), (None, "missing")]
)
def test_other_tokenizers_are_unknown(decoder: Any, reason: str) -> None:
    """The model then serves free text only, and says so when it is asked for more."""
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    if decoder is not None:
        tokenizer.decoder = decoder

    with pytest.raises(UnknownTokensError, match=reason):
        build_table(tokenizer, vocab_size=2, eos_token_ids=[0])


def test_a_tokenizer_that_loses_text_is_unknown() -> None:
    """A grammar could never be sure of what its tokens say."""
    words = {word: place for place, word in enumerate(["<unk>", "<0x41>", "▁", "a"])}
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=[], unk_token="<unk>"))
    tokenizer.decoder = decoders.ByteFallback()

    with pytest.raises(UnknownTokensError, match="do not spell"):
        build_table(tokenizer, vocab_size=4, eos_token_ids=[0])
