"""8-bit linear layers: exact sums, scales of their own for every channel and token."""

import pytest
import torch
from torch import nn

from failsoft.engine import int8
from failsoft.engine.int8 import (
    EXACT_CHUNK,
    LEVELS,
    Int8Linear,
    IntProduct,
    few_rows_native_product,
    is_exact,
    native_product,
    pick_product,
    quantise,
    quantise_linears,
    widened_product,
)
from tests.engine.architectures import SERVED, make_model

_CPU = torch.device("cpu")
_PRODUCTS = [
    pytest.param(widened_product, id="widened"),
    pytest.param(pick_product(_CPU), id="picked"),
]


def _layer(product: IntProduct, *, num_in: int = 96, bias: bool = True) -> Int8Linear:
    torch.manual_seed(0)
    linear = nn.Linear(num_in, 40, bias=bias).requires_grad_(requires_grad=False)
    return Int8Linear(linear, torch.float32, product=product)


def test_a_row_is_quantised_by_its_own_largest_value() -> None:
    """A row of zeros stays zero, and no row's scale moves another's."""
    levels, scale = quantise(torch.tensor([[1.0, -2.0, 0.5], [0.0, 0.0, 0.0], [300.0, 1.0, -1.0]]))

    assert levels.tolist() == [[64, -127, 32], [0, 0, 0], [127, 0, 0]]
    assert scale[:, 0].tolist() == pytest.approx([2 / LEVELS, 0.0, 300 / LEVELS])


@pytest.mark.parametrize("product", _PRODUCTS)
@pytest.mark.parametrize("num_in", [64, EXACT_CHUNK, EXACT_CHUNK + 1, 4096])
def test_a_product_is_exact_to_the_last_unit(product: IntProduct, num_in: int) -> None:
    """Also where float32 alone would round, beyond its chunk, and at the extremes."""
    torch.manual_seed(0)
    rows = torch.randint(-LEVELS, LEVELS + 1, (5, num_in), dtype=torch.int8)
    rows[0] = LEVELS
    weight = torch.randint(-LEVELS, LEVELS + 1, (num_in, 16), dtype=torch.int8)
    weight[:, 0] = LEVELS

    got = product(rows, weight)

    assert torch.equal(got.long(), rows.long() @ weight.long())


@pytest.mark.parametrize("product", _PRODUCTS)
def test_a_row_does_not_depend_on_its_neighbours(product: IntProduct) -> None:
    """To the last bit, alone or beside 32 rows of which one is enormous."""
    layer = _layer(product)
    row = torch.randn(1, 96)
    crowd = torch.randn(32, 96)
    crowd[3] *= 1e4

    alone = layer(row)
    together = layer(torch.cat((crowd[:7], row, crowd[7:])))[7:8]

    assert torch.equal(alone, together)


def test_a_bad_row_fails_alone() -> None:
    """NaN or infinity in one row leaves the others as they are, and shows in its own."""
    layer = _layer(pick_product(_CPU))
    rows = torch.randn(3, 96)
    good = layer(rows)
    rows[0, 5], rows[2, 7] = float("nan"), float("inf")

    result = layer(rows)

    assert not result[0].isfinite().any()
    assert not result[2].isfinite().any()
    assert torch.equal(result[1], good[1])


@pytest.mark.parametrize("bias", [True, False])
def test_the_result_is_near_the_plain_product(bias: bool) -> None:
    """Within 4 % of the spread of the results, in any number of dimensions."""
    torch.manual_seed(0)
    linear = nn.Linear(256, 40, bias=bias).requires_grad_(requires_grad=False)
    layer = Int8Linear(linear, torch.float32, product=pick_product(_CPU))
    hidden = torch.randn(2, 3, 256)

    plain, got = linear(hidden), layer(hidden)

    assert got.shape == plain.shape
    assert float((got - plain).abs().max() / plain.std()) < 0.04


def test_a_kernel_that_saturates_is_not_picked() -> None:
    """CPUs without VNNI shift rows to 0..255 and add pairs of products in 16 bits."""

    def saturating(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        pairs = (rows.long() + 128)[:, :, None] * weight.long()[None]
        pairs = pairs.reshape(rows.shape[0], -1, 2, weight.shape[1]).sum(2)
        return pairs.clamp(-(2**15), 2**15 - 1).sum(1) - 128 * weight.long().sum(0)

    assert not is_exact(saturating, _CPU)
    assert is_exact(widened_product, _CPU)


def test_a_slow_native_kernel_gets_few_rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without 8-bit instructions it takes a millisecond a row; a prompt must not wait for that."""
    seconds = {native_product: 0.1, widened_product: 0.01}
    monkeypatch.setattr(int8, "is_exact", lambda product, device: True)
    monkeypatch.setattr(int8, "_seconds", seconds.__getitem__)

    slow = pick_product.__wrapped__(_CPU)
    seconds[native_product] = 0.001
    fast = pick_product.__wrapped__(_CPU)

    assert (slow, fast) == (few_rows_native_product, native_product)


def test_the_layer_that_makes_logits_keeps_its_precision() -> None:
    """Every other plain layer is replaced, and the largest error is told."""
    model = make_model("llama", {"num_hidden_layers": 1})

    error = quantise_linears(model, torch.float32)

    assert error is not None
    assert 0 < error < 0.2
    assert type(model.lm_head) is nn.Linear
    assert sum(isinstance(module, Int8Linear) for module in model.modules()) == 7


def test_a_model_without_plain_layers_has_nothing_to_quantise() -> None:
    """GPT-2 multiplies by layers of its own, so int8 would change nothing and say otherwise."""
    model = make_model("gpt2", SERVED["gpt2"])

    assert quantise_linears(model, torch.float32) is None
