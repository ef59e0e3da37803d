"""Tiny random models of many architectures, all with the quirks that break engines.

Windows are shorter than the prompts, KV heads fewer than query heads where the
architecture allows it, and weights large enough for attention to matter.
"""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

VOCAB = 97

_COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}

SERVED: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "gemma": {"head_dim": 16},
    "gemma2": {"head_dim": 16, "sliding_window": 12, "query_pre_attn_scalar": 8},
    "gemma3_text": {
        "head_dim": 16,
        "sliding_window": 12,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "query_pre_attn_scalar": 8,
    },
    "mistral": {"sliding_window": 12},
    "phi3": {},
    "phimoe": {"sliding_window": 12, "num_local_experts": 4},
    "gpt2": {"n_positions": 512},
    "gpt_neox": {},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "olmo2": {},
    "cohere": {},
    "granite": {},
    "starcoder2": {"sliding_window": 12},
    "stablelm": {},
    "mixtral": {"num_local_experts": 4},
    "qwen3_moe": {
        "head_dim": 16,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "decoder_sparse_step": 1,
    },
    "gpt_oss": {"head_dim": 16, "num_local_experts": 4, "sliding_window": 12},
}
"""What the engine must serve exactly, by transformers' model type."""

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "bloom": ({"n_head": 4, "n_layer": 2}, "attention function"),
    "mamba": ({}, "recurrent state"),
    "jamba": (
        {"attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False},
        "recurrent state",
    ),
}
"""What the engine cannot serve right: settings, and a word of the reason."""


def make_model(model_type: str, settings: dict[str, Any]) -> Any:
    """Return a seeded random float32 model in eval mode."""
    config = AutoConfig.for_model(model_type, **{**_COMMON, **settings})
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    with torch.no_grad():
        for parameter in model.parameters():
            # The default 0.02 makes every logit alike, and any mistake invisible.
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.3)
    return model
