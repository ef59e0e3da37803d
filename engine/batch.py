"""From rows of tokens to the tensors of one forward; knows no request and no policy."""

from dataclasses import dataclass

import torch

from failsoft.engine.attention.inputs import AttentionInputs, RowSpan
from failsoft.engine.sequence import StepPlan

_EXACT_LEN = 16
"""Packs up to this long, decodes above all, are not filled up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackRow:
    """Consecutive tokens of one sequence that go into a forward."""

    token_ids: list[int]
    start: int
    """Position of the first of them."""
    blocks: tuple[int, ...]
    """The sequence's block table, long enough for the last of them."""
    num_logits: int
    """Trailing tokens whose logits are needed: 1 to sample, more to score a prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInputs:
    """Tensors of one forward over ``num_tokens`` packed tokens and some filler behind them.

    ``input_ids`` and ``position_ids``: ``(1, padded_len(num_tokens))``.
    ``logits_rows``: ``(num_wanted,)`` packed tokens whose logits are needed.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    logits_rows: torch.Tensor
    attention: AttentionInputs


def padded_len(num_tokens: int) -> int:
    """Return the length a pack of *num_tokens* is filled up to.

    Matrix kernels are built and kept for each length they meet. Every length from 1 to
    512 cost 170 MB and a pause each; these few dozen cost little, and the filler takes no
    part in attention and stores no KV.
    """
    if num_tokens <= _EXACT_LEN:
        return num_tokens
    step = 8 if num_tokens <= 64 else 32
    return -(-num_tokens // step) * step


def rows_of(plan: StepPlan) -> list[PackRow]:
    """Return the plan's rows as plain tokens and blocks."""
    return [
        PackRow(
            token_ids=row.sequence.tokens[row.start : row.start + row.num_tokens],
            start=row.start,
            blocks=tuple(row.sequence.blocks),
            num_logits=row.num_logits,
        )
        for row in plan.rows
    ]


def pack(rows: list[PackRow], *, block_size: int, device: torch.device) -> StepInputs:
    """Lay *rows* one behind the other, then filler up to ``padded_len``."""
    token_ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    wanted: list[int] = []
    spans: list[RowSpan] = []
    for row in rows:
        num_tokens = len(row.token_ids)
        until = row.start + num_tokens
        num_blocks = -(-until // block_size)
        span = RowSpan(
            pack_start=len(token_ids),
            num_tokens=num_tokens,
            context_len=until,
            blocks=row.blocks[:num_blocks],
        )
        spans.append(span)
        token_ids.extend(row.token_ids)
        positions.extend(range(row.start, until))
        slots.extend(
            row.blocks[position // block_size] * block_size + position % block_size
            for position in range(row.start, until)
        )
        wanted.extend(range(len(token_ids) - row.num_logits, len(token_ids)))
    filler = [0] * (padded_len(len(token_ids)) - len(token_ids))
    return StepInputs(
        input_ids=torch.tensor([token_ids + filler], device=device),
        position_ids=torch.tensor([positions + filler], device=device),
        logits_rows=torch.tensor(wanted, dtype=torch.long, device=device),
        attention=AttentionInputs(
            slots=torch.tensor(slots, device=device), rows=tuple(spans), block_size=block_size
        ),
    )
