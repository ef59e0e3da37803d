"""Linear layers in 8 bits: weights scaled by output channel, activations by token.

``y[t, o] = x_scale[t] * w_scale[o] * sum_k xq[t, k] * wq[o, k]``, where a scale is the row's
largest magnitude over 127 and a quantised value is rounded half to even. The sum is of
integers and exact, so a token's result depends on nothing but the token: neither on the rows
it shares a batch with nor on the kernel that adds. (A scale over the whole tensor, as in
torch's dynamic quantisation, would let a neighbour's outlier move every row.)

What this module computes is part of what ``dtype = "int8"`` means in a version's digest.
"""

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from failsoft.engine.linear import plain_layers, product_error

LEVELS = 127
"""Symmetric: -128 is never used, so that a product's sign is exact."""

EXACT_CHUNK = 2**24 // LEVELS**2
"""Columns over which float32 adds 8-bit products without rounding: 1,040."""

_FEW_ROWS = 4
_MANY_ROWS = 64
"""What a product's speed is measured on."""

IntProduct = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""``(rows, in)`` and ``(in, out)`` int8 to the exact ``(rows, out)`` int32."""


def quantise(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each row in 8 bits, and its scale.

    Args:
        values: ``(rows, columns)`` of any floating dtype; NaN and infinity make their row's
            scale so, and with it the row's result.

    Returns:
        ``(rows, columns)`` int8 in -127..127, and ``(rows, 1)`` float32.
    """
    exact = values.float()
    scale = exact.abs().amax(dim=1, keepdim=True) / LEVELS
    divisor = torch.where(scale > 0, scale, torch.ones_like(scale))
    levels = (exact / divisor).round().nan_to_num(0.0, 0.0, 0.0).clamp(-LEVELS, LEVELS)
    return levels.to(torch.int8), scale


def native_product(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Multiply in the device's 8-bit units.

    CUDA's kernel takes at least 17 rows in multiples of 8 (untested on hardware).
    """
    if rows.device.type != "cuda":
        return torch._int_mm(rows, weight)
    padding = max(24, -(-rows.shape[0] // 8) * 8) - rows.shape[0]
    return torch._int_mm(functional.pad(rows, (0, 0, 0, padding)), weight)[: rows.shape[0]]


def widened_product(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Multiply in float32, in pieces that it adds exactly: for devices without 8-bit units."""
    total = torch.zeros(rows.shape[0], weight.shape[1], dtype=torch.int32, device=rows.device)
    for start in range(0, rows.shape[1], EXACT_CHUNK):
        piece = slice(start, start + EXACT_CHUNK)
        total += (rows[:, piece].float() @ weight[piece].float()).int()
    return total


def is_exact(product: IntProduct, device: torch.device) -> bool:
    """Return whether *product* is right at its extremes.

    Kernels for CPUs without VNNI (oneDNN's, measured) shift rows to 0..255, add pairs of
    products in 16 bits and saturate: large values of one sign show it.
    """
    for value in (LEVELS, -LEVELS):
        rows = torch.full((3, 768), LEVELS, dtype=torch.int8, device=device)
        weight = torch.full((768, 16), value, dtype=torch.int8, device=device)
        try:
            got = product(rows, weight)
        except RuntimeError:  # no kernel for this device or build
            return False
        if not bool((got == LEVELS * value * 768).all()):
            return False
    return True


def few_rows_native_product(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Multiply a few rows natively, more in float32: both are exact, so the sums are the same."""
    product = native_product if rows.shape[0] <= _FEW_ROWS else widened_product
    return product(rows, weight)


@cache
def pick_product(device: torch.device) -> IntProduct:
    """Return the fastest product that is exact on *device*; measured once in a process.

    A CPU without VNNI may run the native one on scalar code: a millisecond a row, where the
    other's time is mostly that of widening the weights, however many rows there are.
    """
    if not is_exact(native_product, device):
        return widened_product
    is_fast = device.type != "cpu" or _seconds(native_product) <= _seconds(widened_product)
    return native_product if is_fast else few_rows_native_product


def _seconds(product: IntProduct) -> float:
    """Return the shortest time of a batch's product."""
    rows = torch.ones(_MANY_ROWS, 768, dtype=torch.int8)
    weight = torch.ones(768, 768, dtype=torch.int8)
    times = []
    for _ in range(3):
        begun_s = time.perf_counter()
        product(rows, weight)
        times.append(time.perf_counter() - begun_s)
    return min(times)


class Int8Linear(nn.Module):
    """A frozen linear layer in 8 bits: ``(…, in_features)`` to ``(…, out_features)``.

    Args:
        linear: What to quantise.
        dtype: Of what it returns.
        product: How it multiplies; exact.
    """

    def __init__(self, linear: nn.Linear, dtype: torch.dtype, *, product: IntProduct) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        levels, scale = quantise(linear.weight.detach())
        self._weight = levels.t().contiguous()
        self._scale = scale.t()
        self._bias = None if linear.bias is None else linear.bias.detach().float()
        self._dtype = dtype
        self._product = product

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return ``hidden @ weight.T + bias`` as 8 bits see it."""
        levels, scale = quantise(hidden.reshape(-1, self.in_features))
        result = self._product(levels, self._weight).float().mul_(scale).mul_(self._scale)
        if self._bias is not None:
            result += self._bias
        return result.to(self._dtype).reshape(*hidden.shape[:-1], self.out_features)


def quantise_linears(model: Any, dtype: torch.dtype) -> float | None:
    """Replace every plain nn.Linear of *model*, but the one that makes logits, by an Int8Linear.

    The last layer decides between close logits, so it keeps its precision.

    Args:
        model: A transformers causal language model.
        dtype: Of what the layers return.

    Returns:
        The largest error of an 8-bit product against the plain one, in standard deviations
        of the plain one; None for a model without such layers.
    """
    worst: float | None = None
    head = model.get_output_embeddings()
    generator = torch.Generator().manual_seed(0)
    for parent, name, linear in plain_layers(model, nn.Linear):
        if linear is head:
            continue
        made = Int8Linear(linear, dtype, product=pick_product(linear.weight.device))
        worst = max(worst or 0.0, product_error(made, linear, dtype, generator))
        setattr(parent, name, made)
    return worst
