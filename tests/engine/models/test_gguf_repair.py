"""What the GGUF loader loses: each known loss is repaired or refused."""

from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import BPE

from failsoft.engine.models.gguf_header import GgufHeader
from failsoft.engine.models.gguf_repair import (
    check_header,
    check_tokens,
    repair_config,
    repair_tokenizer,
)
from failsoft.errors import UnsupportedModelError


def header(*tensors: str, **metadata: Any) -> GgufHeader:
    """Return a header of architecture llama with dots written as double underscores."""
    values = {key.replace("__", "."): value for key, value in metadata.items()}
    architecture = {"general.architecture": "llama"}
    return GgufHeader(metadata=architecture | values, tensor_names=frozenset(tensors), strings={})


def byte_level() -> SimpleNamespace:
    """Return what a tokenizer has after transformers took a rule for GPT-2's."""
    backend = Tokenizer(BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return SimpleNamespace(backend_tokenizer=backend, model_max_length=10**30)


@pytest.mark.parametrize("name", ["rope_freqs.weight", "rope_factors_long.weight"])
def test_rope_factors_kept_as_tensors_are_refused(name: str) -> None:
    """Llama 3.1 and Phi 3 keep theirs so."""
    with pytest.raises(UnsupportedModelError, match=name):
        check_header(header(name), model="x")


def test_unscaled_rope_is_taken() -> None:
    """``none`` is llama.cpp's word for no scaling."""
    check_header(header(llama__rope__scaling__type="none"), model="x")


@pytest.mark.parametrize("rule", ["unheard-of", "default", None])
def test_unknown_splitting_rule_is_refused(rule: str | None) -> None:
    """GPT-2's rule for another's text gives other tokens than in training."""
    found = {"tokenizer__ggml__model": "gpt2"} | ({"tokenizer__ggml__pre": rule} if rule else {})

    with pytest.raises(UnsupportedModelError, match="pre-tokenizer"):
        repair_tokenizer(byte_level(), header(**found), model="x")


def test_rule_that_transformers_knows_is_left_alone() -> None:
    """Transformers set its own splitter, so there is nothing to repair."""
    tokenizer = byte_level()
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    found = header(tokenizer__ggml__model="gpt2", tokenizer__ggml__pre="qwen2")

    repair_tokenizer(tokenizer, found, model="x")

    assert isinstance(tokenizer.backend_tokenizer.pre_tokenizer, pre_tokenizers.Whitespace)


def test_every_end_token_of_the_file_ends_a_sequence() -> None:
    """Chat models name the end of a turn apart from the end of a text."""
    config, generation_config = SimpleNamespace(), SimpleNamespace()
    ends = header(tokenizer__ggml__eos_token_id=1, tokenizer__ggml__eot_token_id=106)

    repair_config(config, generation_config, ends)

    assert config.eos_token_id == generation_config.eos_token_id == [1, 106]


def test_gemma_3_27b_gets_its_own_attention_scale() -> None:
    """GGUF does not hold it and transformers assumes 256, which is right but for the 27B."""
    small, large = (
        SimpleNamespace(num_hidden_layers=layers, query_pre_attn_scalar=256) for layers in (18, 62)
    )
    gemma = header(general__architecture="gemma3")

    for config in (small, large):
        repair_config(config, SimpleNamespace(), gemma)

    assert (small.query_pre_attn_scalar, large.query_pre_attn_scalar) == (256, 168)


def test_tokenizer_with_other_tokens_is_refused() -> None:
    """Sentencepiece's sign for a space is the space; anything else is another token."""
    tokenizer = SimpleNamespace(convert_ids_to_tokens=lambda ids: ["▁▁", "b", "c"])

    check_tokens(tokenizer, ["  ", "b", "c"], model="x")
    with pytest.raises(UnsupportedModelError, match=r"token 2 is 'd' in the file and 'c'"):
        check_tokens(tokenizer, ["  ", "b", "d"], model="x")
