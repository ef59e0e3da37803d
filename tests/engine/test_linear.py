"""Packed linear layers and widened weights: the same numbers, in less time or memory."""

import pytest
import torch
from torch import nn

from failsoft.engine.linear import CompactEmbedding, PackedLinear, own_weights, pack_linears


class Tied(nn.Module):
    """An embedding, a norm, and an output layer that shares the embedding's weight."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(40, 16, dtype=dtype)
        self.inner = nn.Linear(16, 16, dtype=dtype)
        self.head = nn.Linear(16, 40, bias=False, dtype=dtype)
        self.head.weight = self.embed.weight
        self.requires_grad_(requires_grad=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(torch.relu(self.inner(self.embed(ids))))
        return out


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("num_rows", [1, 3, 64])
def test_a_packed_product_is_the_plain_product(bias: bool, num_rows: int) -> None:
    """Up to the order of summation, in two and in three dimensions."""
    torch.manual_seed(0)
    linear = nn.Linear(48, 33, bias=bias).requires_grad_(requires_grad=False)
    hidden = torch.randn(1, num_rows, 48)

    packed = PackedLinear(linear, torch.float32)

    torch.testing.assert_close(packed(hidden), linear(hidden), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(packed(hidden[0]), linear(hidden[0]), rtol=1e-5, atol=1e-5)


def test_packing_replaces_every_plain_layer_and_measures_its_error() -> None:
    """Tied weights are packed too, and the embedding keeps its own."""
    model = Tied(torch.float32)
    ids = torch.arange(7)
    before = model(ids)

    error = pack_linears(model, torch.float32)

    assert error < 1e-5
    children: dict[str, nn.Module] = dict(model.named_children())
    assert isinstance(children["inner"], PackedLinear)
    assert isinstance(children["head"], PackedLinear)
    torch.testing.assert_close(model(ids), before, rtol=1e-4, atol=1e-5)


def test_a_subclass_with_its_own_forward_is_left_alone() -> None:
    """What it does beyond a product would be lost."""

    class Scaled(nn.Linear):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return super().forward(hidden) * 2

    model = nn.Sequential(Scaled(4, 4))

    assert pack_linears(model, torch.float32) == 0.0
    assert type(model[0]) is Scaled


def test_narrow_weights_computed_wide_are_exactly_the_stored_ones() -> None:
    """Widening bfloat16 is exact: the float32 model of the same rounded weights."""
    narrow, wide = Tied(torch.bfloat16), Tied(torch.bfloat16).float()
    ids = torch.arange(7)

    pack_linears(narrow, torch.float32)
    own_weights(narrow, torch.float32)

    children: dict[str, nn.Module] = dict(narrow.named_children())
    assert isinstance(children["embed"], CompactEmbedding)
    assert narrow.embed.weight.dtype == torch.bfloat16
    assert narrow(ids).dtype == torch.float32
    torch.testing.assert_close(narrow(ids), wide(ids), rtol=1e-4, atol=1e-5)


def test_a_model_lets_go_of_the_tensors_it_was_loaded_with() -> None:
    """A slice of a mapped file keeps all of the file resident."""
    model = Tied(torch.float32)
    loaded = model.embed.weight.data_ptr()

    pack_linears(model, torch.float32)
    own_weights(model, torch.float32)

    assert model.embed.weight.data_ptr() != loaded


def test_a_product_that_is_no_number_is_the_worst_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """`max` passes over NaN: a kernel that gives it would count as exact."""
    monkeypatch.setattr(
        PackedLinear, "forward", lambda _, hidden: torch.full((*hidden.shape[:-1], 40), torch.nan)
    )
    model = nn.Sequential(nn.Linear(16, 40), nn.Linear(16, 40)).requires_grad_(requires_grad=False)

    assert pack_linears(model, torch.float32) == float("inf")
