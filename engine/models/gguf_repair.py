"""Puts right what transformers' GGUF loader leaves out, and refuses what it cannot carry.

A GGUF file holds less than a Hugging Face repository, and transformers 5.24 reads
less than the file holds. Whatever is lost there makes answers silently worse, so
each loss that is known is repaired or refused here. Measured against SmolLM2-135M
and, for Gemma 3's tokenizer, against sentencepiece.
"""

from typing import Any

from tokenizers import pre_tokenizers

from failsoft.engine.models.gguf_header import GgufHeader
from failsoft.errors import UnsupportedModelError

_DIGIT_BY_DIGIT = frozenset({"smollm", "starcoder"})
"""Pre-tokenizers that split numbers into digits before GPT-2's rule, and that
transformers takes for GPT-2's alone: a space or line break before a digit then
merges otherwise than in training."""

_GPT2_RULE = frozenset({"gpt-2", "gpt2", "phi-2", "olmo", "mpt"})
"""Pre-tokenizers that are GPT-2's rule and nothing else."""

_ROPE_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")

_GEMMA3_27B_LAYERS = 62
_GEMMA3_27B_SCALAR = 168
"""hidden 5376 / 32 heads; every smaller Gemma 3 has 256 (Gemma 3's released configs)."""


def check_header(header: GgufHeader, *, model: str) -> None:
    """Refuse a file whose RoPE scaling the loader would drop without a word.

    Raises:
        UnsupportedModelError: It has scaled RoPE.
    """
    kind = header.metadata.get(f"{header.architecture}.rope.scaling.type", "none")
    tensors = [name for name in _ROPE_TENSORS if name in header.tensor_names]
    if kind == "none" and not tensors:
        return
    raise UnsupportedModelError(
        model=model,
        reason=f"its GGUF file scales RoPE ({tensors or kind}), which transformers drops when it "
        "reads GGUF; use the model's safetensors",
    )


def repair_config(config: Any, generation_config: Any, header: GgufHeader) -> None:
    """Set in place what the file means and the loader did not take over."""
    is_gemma3 = header.architecture == "gemma3"
    if is_gemma3 and config.num_hidden_layers == _GEMMA3_27B_LAYERS:
        config.query_pre_attn_scalar = _GEMMA3_27B_SCALAR
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    found = [header.metadata.get(f"tokenizer.ggml.{key}") for key in keys]
    ends = sorted({int(token) for token in found if token is not None})
    if ends:
        config.eos_token_id = ends if len(ends) > 1 else ends[0]
        generation_config.eos_token_id = config.eos_token_id


def repair_tokenizer(tokenizer: Any, header: GgufHeader, *, model: str) -> None:
    """Set in place how text is split before it is merged into tokens.

    Raises:
        UnsupportedModelError: The file names a rule that neither transformers nor
            this module knows, so prompts would become other tokens than in training.
    """
    tokenizer.model_max_length = int(
        header.metadata.get(f"{header.architecture}.context_length", tokenizer.model_max_length)
    )
    if header.metadata.get("tokenizer.ggml.model") != "gpt2":
        return
    rule = header.metadata.get("tokenizer.ggml.pre")
    backend = tokenizer.backend_tokenizer
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if rule in _DIGIT_BY_DIGIT:
        digits = pre_tokenizers.Digits(individual_digits=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    elif rule not in _GPT2_RULE and isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel):
        raise UnsupportedModelError(
            model=model,
            reason=f"its GGUF file names the pre-tokenizer {rule!r}, which transformers "
            "does not know; use the model's safetensors",
        )


def check_tokens(tokenizer: Any, tokens: list[str], *, model: str) -> None:
    """Refuse a tokenizer whose ids do not mean the file's tokens.

    Raises:
        UnsupportedModelError: It names the first id that differs.
    """
    found = tokenizer.convert_ids_to_tokens(list(range(len(tokens))))
    # llama.cpp writes some of sentencepiece's "▁" as the spaces that they stand for.
    pairs = enumerate(zip(found, tokens, strict=True))
    wrong = [i for i, (a, b) in pairs if a is None or a.replace("▁", " ") != b.replace("▁", " ")]
    if wrong:
        raise UnsupportedModelError(
            model=model,
            reason=f"its tokenizer is read wrong: token {wrong[0]} is {tokens[wrong[0]]!r} in the "
            f"file and {found[wrong[0]]!r} once loaded, {len(wrong)} differ",
        )
