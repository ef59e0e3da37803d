"""Attention sites: one for each attention call of a forward, in call order.

A model's layers are not asked for their kind; the calls they make are. Keyed by
call order, since some models call attention twice in one layer or share layers.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSite:
    """Shapes and rules of one attention call; heads and dims are counts."""

    index: int
    num_query_heads: int
    num_kv_heads: int
    key_dim: int
    value_dim: int
    """Differs from *key_dim* in latent-attention models."""
    scaling: float
    window: int | None
    """Keys a query sees, itself included; None sees all before it."""
    softcap: float | None
    has_sinks: bool

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.num_query_heads // self.num_kv_heads

    def kv_bytes_per_token(self, dtype: torch.dtype) -> int:
        """Bytes that one token's key and value take."""
        return self.num_kv_heads * (self.key_dim + self.value_dim) * dtype.itemsize
