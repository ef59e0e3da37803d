"""Linear layers with weights laid out once for the CPU's matrix kernels.

``torch.nn.Linear`` hands oneDNN a plain matrix that is laid out anew on every call;
doing it once is 2 to 3 times as fast for the few rows of a decode step. The two
operators are what inductor emits when weights are frozen.

On CPUs without bfloat16 instructions a bfloat16 product runs on scalar code (20
GFLOP/s where float32 reaches 150). There the stored bfloat16 weights are widened,
which is exact, and the arithmetic is float32.
"""

import math
from collections.abc import Iterator
from typing import TypeVar

import torch
from torch import nn
from torch.nn import functional

from failsoft.engine.device import has_bfloat16

_Layer = TypeVar("_Layer", bound=nn.Module)


def compute_dtype(stored: torch.dtype, device: torch.device) -> torch.dtype:
    """Return the dtype that weights *stored* so are computed in on *device*."""
    if stored == torch.bfloat16 and not has_bfloat16(device):
        return torch.float32
    return stored


class PackedLinear(nn.Module):
    """A frozen linear layer whose weight is in oneDNN's blocked layout.

    ``(…, in_features)`` to ``(…, out_features)``; same result as nn.Linear up to
    the order of summation.

    Args:
        linear: What to pack; its weight is left to whoever else holds it.
        dtype: Of the arithmetic; a narrower weight is widened first.
    """

    def __init__(self, linear: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = None if linear.bias is None else linear.bias.detach().to(dtype)
        # Not a Parameter: the blocked layout is opaque to everything but its operator.
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach().to(dtype))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return ``hidden @ weight.T + bias``."""
        packed: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            hidden, self._packed, self.bias, "none", [], ""
        )
        return packed


class CompactEmbedding(nn.Module):
    """An embedding kept in its stored dtype, widened row by row as it is looked up."""

    def __init__(self, embedding: nn.Embedding, dtype: torch.dtype) -> None:
        super().__init__()
        # A copy, for the reason that own_weights gives.
        self.weight = nn.Parameter(embedding.weight.detach().clone(), requires_grad=False)
        self._dtype = dtype

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Return ``(…, dim)`` rows of the table."""
        return functional.embedding(token_ids, self.weight).to(self._dtype)


def plain_layers(model: nn.Module, kind: type[_Layer]) -> Iterator[tuple[nn.Module, str, _Layer]]:
    """Yield (parent, attribute, child) for each child that is exactly of *kind*.

    A subclass has a forward of its own, which must be kept.
    """
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is kind:
                yield parent, name, child


def pack_linears(model: nn.Module, dtype: torch.dtype) -> float:
    """Replace every plain nn.Linear of a CPU model by a PackedLinear of *dtype*.

    One layer at a time, unpacked weights freed as it goes, to keep the peak low.

    Returns:
        The largest error of a packed product against the plain one, in standard
        deviations of the plain one; 0.0 for a model without plain linear layers.
    """
    worst = 0.0
    generator = torch.Generator().manual_seed(0)
    for parent, name, linear in plain_layers(model, nn.Linear):
        packed = PackedLinear(linear, dtype)
        worst = max(worst, product_error(packed, linear, dtype, generator))
        setattr(parent, name, packed)
    return worst


def product_error(
    made: nn.Module, linear: nn.Linear, dtype: torch.dtype, generator: torch.Generator
) -> float:
    """Return the largest error of *made* on random rows, in standard deviations of *linear*'s.

    Infinity where there is no number: `max` would pass over NaN, and with it over the layer.
    """
    weight = linear.weight.detach()
    probe = torch.randn(2, linear.in_features, generator=generator).to(weight.device, dtype)
    bias = None if linear.bias is None else linear.bias.detach().to(dtype)
    plain = functional.linear(probe, weight.to(dtype), bias).float()
    error = float((made(probe).float() - plain).abs().max() / plain.std().clamp_min(1e-6))
    return math.inf if math.isnan(error) else error


def own_weights(model: nn.Module, dtype: torch.dtype) -> None:
    """Give *model* its own memory for what is left after ``pack_linears``, in *dtype*.

    Loaded tensors are slices of a mapped file, and one slice keeps all of it resident.
    Plain embeddings stay as narrow as they are stored and are widened as they are looked up.
    """
    for parent, name, embedding in plain_layers(model, nn.Embedding):
        if embedding.weight.dtype != dtype:
            setattr(parent, name, CompactEmbedding(embedding, dtype))
    narrow = {id(m.weight) for m in model.modules() if isinstance(m, CompactEmbedding)}
    for tensor in (*model.parameters(), *model.buffers()):
        if id(tensor) not in narrow:
            wanted = dtype if tensor.is_floating_point() else tensor.dtype
            tensor.data = tensor.data.to(wanted, copy=True)
