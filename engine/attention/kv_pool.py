"""The tensors behind KV blocks: one key and one value pool for each attention site.

Laid out ``(num_kv_heads, num_blocks, block_size, dim)``: gathering a row's blocks
then yields ``(num_kv_heads * rows, tokens, dim)`` without a transposing copy, which
is what two batched matrix products want.
"""

import math

import torch

from failsoft.engine.attention.site import AttentionSite


def _untouched_zeros(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """Return zeros whose pages the system commits only when they are first written.

    Zeros, not garbage: masked positions are multiplied by a probability of zero, and
    zero times NaN is NaN.
    """
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    import numpy as np

    num_bytes = math.prod(shape) * dtype.itemsize
    return torch.from_numpy(np.zeros(num_bytes, dtype=np.uint8)).view(dtype).view(shape)


class KVPool:
    """Key and value tensors of every site.

    Args:
        sites: In call order.
        num_blocks: Blocks in the pool.
        block_size: Tokens in a block.
        dtype: Of keys and values.
        device: Where they live.
    """

    def __init__(
        self,
        *,
        sites: tuple[AttentionSite, ...],
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        for site in sites:
            head = (site.num_kv_heads, num_blocks, block_size)
            self.keys.append(_untouched_zeros((*head, site.key_dim), dtype, device))
            self.values.append(_untouched_zeros((*head, site.value_dim), dtype, device))

    def write(self, site: int, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        """Store *key* and *value*, each ``(num_kv_heads, num_tokens, dim)``, at *slots*.

        A slot is ``block * block_size + offset``.
        """
        for pool, new in ((self.keys[site], key), (self.values[site], value)):
            flat = pool.view(pool.shape[0], -1, pool.shape[-1])
            flat.index_copy_(1, slots, new.to(pool.dtype))

    def gather(self, site: int, blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the keys and values of *blocks* ``(num_rows, blocks_per_row)``.

        Each is ``(num_kv_heads, num_rows, blocks_per_row * block_size, dim)``.
        """
        gathered = []
        for pool in (self.keys[site], self.values[site]):
            picked = pool.index_select(1, blocks.reshape(-1))
            shape = (pool.shape[0], blocks.shape[0], blocks.shape[1] * self.block_size, -1)
            gathered.append(picked.view(shape))
        return gathered[0], gathered[1]

    def scrub(self, blocks: list[int]) -> None:
        """Zero *blocks* in every site: what a failed row wrote must not reach the next holder."""
        if not blocks:
            return
        index = torch.tensor(blocks, device=self.keys[0].device)
        for pool in (*self.keys, *self.values):
            pool.index_fill_(1, index, 0)
