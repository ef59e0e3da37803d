"""Single tokens, shown with their bytes."""

import pytest

from failsoft.engine.text.token_text import TokenTexts
from tests.engine.tiny_tokenizer import (
    byte_fallback_tokenizer,
    byte_level_tokenizer,
    token_id,
)


@pytest.mark.parametrize("text", ["hello the fox", "naïve 🎉 世界", " \n\t\x00 €"])
def test_the_bytes_of_a_byte_level_text_are_its_tokens_bytes(text: str) -> None:
    """However its characters are cut."""
    texts = TokenTexts(byte_level_tokenizer())
    ids = byte_level_tokenizer().encode(text, add_special_tokens=False).ids

    assert b"".join(texts.of(number).data or b"" for number in ids) == text.encode()


def test_a_part_of_a_character_is_shown_by_its_bytes() -> None:
    """U+FFFD would make all such tokens look the same."""
    texts = TokenTexts(byte_level_tokenizer())
    ids = byte_level_tokenizer().encode("🎈", add_special_tokens=False).ids

    shown = [texts.of(number).text for number in ids]

    assert len(ids) > 1
    assert shown[-1] == "bytes:\\x88"
    assert not any("\ufffd" in text for text in shown)


def test_byte_fallback_tokens_are_bytes_and_words_keep_their_space() -> None:
    """SentencePiece's ``▁`` is a space, ``<0xE2>`` a byte."""
    tokenizer = byte_fallback_tokenizer()
    texts = TokenTexts(tokenizer)

    assert texts.of(token_id(tokenizer, "▁the")) == (" the", b" the")
    assert texts.of(token_id(tokenizer, "he")) == ("he", b"he")
    assert texts.of(token_id(tokenizer, "<0x0A>")) == ("\n", b"\n")
    assert texts.of(token_id(tokenizer, "<0xE2>")) == ("bytes:\\xe2", b"\xe2")


def test_added_tokens_are_shown_as_they_are_written() -> None:
    """Their text is no spelling of bytes."""
    texts = TokenTexts(byte_level_tokenizer())

    assert texts.of(token_id(byte_level_tokenizer(), "<|im_end|>")).data == b"<|im_end|>"


def test_an_id_that_no_token_has_is_shown_by_its_number() -> None:
    """Logits may be wider than the vocabulary."""
    assert TokenTexts(byte_level_tokenizer()).of(100_000) == ("token_id:100000", None)
