"""The incremental detokeniser against the tokenizer's own decode."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from failsoft.engine.text.detokenizer import MAX_PENDING_TOKENS, REPLACEMENT, Detokenizer
from tests.engine.tiny_tokenizer import byte_fallback_tokenizer, byte_level_tokenizer, token_id

BYTE_LEVEL = byte_level_tokenizer()
BYTE_FALLBACK = byte_fallback_tokenizer()


def deltas_of(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """What each token adds, and what the flush adds."""
    detokenizer = Detokenizer(tokenizer)
    return [*(detokenizer.push(each) for each in ids), detokenizer.flush()]


def byte_id(value: int) -> int:
    """The token of one byte."""
    return token_id(BYTE_FALLBACK, f"<0x{value:02X}>")


@settings(max_examples=400, deadline=None)
@given(st.lists(st.integers(0, BYTE_LEVEL.get_vocab_size() + 3), max_size=60))
def test_random_byte_level_ids_join_to_the_decoded_text(ids: list[int]) -> None:
    """Special tokens, ids past the vocabulary and invalid UTF-8 included."""
    assert "".join(deltas_of(BYTE_LEVEL, ids)) == BYTE_LEVEL.decode(ids, skip_special_tokens=True)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40), st.booleans())
def test_encoded_text_comes_back_without_a_replacement_character(text: str, is_llama: bool) -> None:
    """Text that holds none gets none, however its characters are cut into tokens."""
    tokenizer = BYTE_FALLBACK if is_llama else BYTE_LEVEL
    ids = tokenizer.encode(text, add_special_tokens=False).ids

    deltas = deltas_of(tokenizer, ids)

    assert "".join(deltas) == tokenizer.decode(ids, skip_special_tokens=True)
    assert (REPLACEMENT in "".join(deltas)) == (REPLACEMENT in text)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, BYTE_LEVEL.get_vocab_size() - 1), max_size=40))
def test_text_held_back_never_grows_past_the_bound(ids: list[int]) -> None:
    """What is not out yet is the text of at most MAX_PENDING_TOKENS tokens."""
    detokenizer = Detokenizer(BYTE_LEVEL)
    for each in ids:
        detokenizer.push(each)
        assert len(detokenizer._pending) <= MAX_PENDING_TOKENS


def test_a_character_split_over_tokens_comes_out_whole() -> None:
    """The three bytes of a euro sign as three byte tokens: two empty deltas, then it."""
    ids = [byte_id(value) for value in "€".encode()]

    assert deltas_of(BYTE_FALLBACK, ids) == ["", "", "€", ""]


def test_a_partial_character_at_the_end_comes_out_once() -> None:
    """``max_tokens`` cut an emoji in two: one U+FFFD, at the flush."""
    ids = BYTE_LEVEL.encode("ok", add_special_tokens=False).ids
    half = [token_id(BYTE_LEVEL, char) for char in "ð\u0141"]  # F0 9F, as GPT-2 writes them

    deltas = deltas_of(BYTE_LEVEL, [*ids, *half])

    assert "".join(deltas[:-1]) == "ok"
    assert deltas[-1] == REPLACEMENT


def test_text_after_garbage_bytes_is_not_lost() -> None:
    """Ten bytes that are never UTF-8, then a word: nothing is dropped or doubled."""
    ids = [byte_id(0xFF)] * 10 + BYTE_FALLBACK.encode("the", add_special_tokens=False).ids

    deltas = deltas_of(BYTE_FALLBACK, ids)

    assert "".join(deltas) == BYTE_FALLBACK.decode(ids) == REPLACEMENT * 10 + " the"
    assert any(deltas[:10]), "the bound lets garbage through before it ends"


def test_valid_bytes_stay_valid_when_garbage_follows() -> None:
    """decode() would turn the whole run into U+FFFD; what was sent cannot be taken back."""
    ids = [byte_id(value) for value in [*"€".encode(), 0xFF]]

    assert "".join(deltas_of(BYTE_FALLBACK, ids)) == "€" + REPLACEMENT


@pytest.mark.parametrize("token", ["<|im_end|>", "<|endoftext|>"])
def test_special_tokens_are_not_shown(token: str) -> None:
    """They steer the model and are no text."""
    ids = [*BYTE_LEVEL.encode("a").ids, token_id(BYTE_LEVEL, token), *BYTE_LEVEL.encode("b").ids]

    assert "".join(deltas_of(BYTE_LEVEL, ids)) == "ab"
