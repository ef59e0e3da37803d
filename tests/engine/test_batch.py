"""From rows to tensors: positions, slots, and filler that nobody sees."""

import pytest
import torch

from failsoft.engine.batch import PackRow, pack, padded_len

CPU = torch.device("cpu")


def make_row(num_tokens: int, start: int, *blocks: int, num_logits: int = 1) -> PackRow:
    return PackRow(
        token_ids=list(range(100, 100 + num_tokens)),
        start=start,
        blocks=blocks,
        num_logits=num_logits,
    )


def test_rows_lie_one_behind_the_other() -> None:
    """Positions are the sequence's own; slots follow its block table."""
    rows = [make_row(3, 0, 7), make_row(1, 5, 2, 9), make_row(2, 3, 4, 5, num_logits=0)]

    inputs = pack(rows, block_size=4, device=CPU)

    assert inputs.input_ids.tolist() == [[100, 101, 102, 100, 100, 101]]
    assert inputs.position_ids.tolist() == [[0, 1, 2, 5, 3, 4]]
    assert inputs.attention.slots.tolist() == [28, 29, 30, 37, 19, 20]
    assert inputs.logits_rows.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("num_tokens", "length"), [(1, 1), (16, 16), (17, 24), (64, 64), (65, 96), (500, 512)]
)
def test_packs_come_in_few_lengths(num_tokens: int, length: int) -> None:
    """Never shorter than what they hold; short ones, decodes above all, exactly that."""
    assert padded_len(num_tokens) == length


def test_a_budget_of_512_meets_36_lengths() -> None:
    """Each length costs kernels and memory for them."""
    assert len({padded_len(n) for n in range(1, 513)}) == 36


def test_filler_has_no_slot_and_no_row() -> None:
    """It goes through the layers and stores and sees nothing."""
    inputs = pack([make_row(17, 0, 0, 1, 2, 3, 4)], block_size=4, device=CPU)

    assert inputs.input_ids.shape == (1, 24)
    assert inputs.attention.slots.shape == (17,)
    assert inputs.logits_rows.tolist() == [16]
