"""Attention by a variable-length kernel: every row of a step in one call.

The kernel is an argument with the calling convention of torch's
``torch.nn.attention.varlen.varlen_attn`` (FlashAttention inside, CUDA only); tests
pass a plain one. The past is gathered into packed keys and values first, since the
kernel that ships with torch takes no block table.

Untested on hardware: no GPU was at hand. The logic around the kernel is tested.
"""

from typing import Protocol

import torch

from failsoft.engine.attention.inputs import AttentionInputs
from failsoft.engine.attention.kv_pool import KVPool
from failsoft.engine.attention.site import AttentionSite


class VarlenKernel(Protocol):
    """``varlen_attn``: rows of queries against rows of keys, packed on the first axis.

    A query row is aligned with the end of its key row (causal, lower right).
    """

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        cu_seq_q: torch.Tensor,
        cu_seq_k: torch.Tensor,
        max_q: int,
        max_k: int,
        *,
        scale: float,
        window_size: tuple[int, int],
        enable_gqa: bool,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Return ``(num_tokens, num_query_heads, value_dim)``; no pair unless asked for."""


class VarlenBackend:
    """Gathers each row's keys once and attends all rows in one kernel call."""

    name = "varlen"

    def __init__(self, kernel: VarlenKernel) -> None:
        self._kernel = kernel

    def attend(
        self,
        site: AttentionSite,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        pool: KVPool,
        inputs: AttentionInputs,
        sinks: torch.Tensor | None,
    ) -> torch.Tensor:
        """Attend every packed token to its own sequence's past; shapes as in ``reference``."""
        del key, value, sinks  # stored already; sites with sinks are not offered this backend
        index = inputs.packed_keys()
        gathered = []
        for stored in (pool.keys[site.index], pool.values[site.index]):
            flat = stored.view(stored.shape[0], -1, stored.shape[-1])
            picked = flat.index_select(1, index.slots).transpose(0, 1)
            gathered.append(picked.to(query.dtype).contiguous())
        # A window of W keys is the query's own and W - 1 to its left.
        left = -1 if site.window is None else site.window - 1
        out = self._kernel(
            query.transpose(0, 1).contiguous(),
            gathered[0],
            gathered[1],
            index.cu_query,
            index.cu_key,
            index.max_query,
            index.max_key,
            scale=site.scaling,
            window_size=(left, 0),
            enable_gqa=site.group > 1,
        )
        assert isinstance(out, torch.Tensor), "the kernel returned more than was asked for"
        return out


def can_serve(site: AttentionSite, dtype: torch.dtype) -> bool:
    """Return whether torch's kernel has this site's rules (FlashAttention 2's limits)."""
    return (
        dtype in (torch.float16, torch.bfloat16)
        and site.softcap is None
        and not site.has_sinks
        and site.key_dim == site.value_dim
        and site.key_dim <= 256
    )
