"""Changes of logits that a row may ask for: a grammar's mask, banned tokens, bias and penalties.

Order: grammar mask → bans → logit_bias → repetition → frequency and presence. Nothing is
kept between steps: counts are taken from the row's tokens, so a preemption cannot lose them.
Rows that ask for nothing are not touched, and a batch without such rows costs one look at
each.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import torch

from failsoft.engine.request import SamplingParams
from failsoft.engine.token_mask import apply_masks


class PenalisedRow(Protocol):
    """What is read of a row."""

    @property
    def params(self) -> SamplingParams:
        """How its request samples."""

    @property
    def token_ids(self) -> Sequence[int]:
        """Its prompt and what was sampled so far."""

    @property
    def position(self) -> int:
        """How many of them were sampled."""

    @property
    def end_token_ids(self) -> frozenset[int]:
        """Tokens that would end it."""

    @property
    def mask(self) -> bytes | None:
        """The tokens that its grammar allows; None when it has none."""


class _Entry(NamedTuple):
    """One logit and a number for it."""

    row: int
    token_id: int
    value: float


def is_asking(row: PenalisedRow) -> bool:
    """Whether *row* wants its logits changed."""
    params = row.params
    return bool(
        row.mask is not None
        or params.logit_bias
        or params.allowed_token_ids is not None
        or params.presence_penalty
        or params.frequency_penalty
        or params.repetition_penalty != 1
        or row.position < params.min_tokens
    )


def apply(logits: torch.Tensor, rows: Sequence[PenalisedRow]) -> None:
    """Change *logits*, ``(num_rows, vocab_size)`` float32, as their rows ask, in place."""
    apply_masks(logits, [row.mask for row in rows])
    _ban(logits, rows)
    bias = [
        _Entry(index, token_id, value)
        for index, row in enumerate(rows)
        for token_id, value in row.params.logit_bias.items()
    ]
    _add(logits, bias)
    _repeat(logits, rows)
    counted = [
        _Entry(index, token_id, -count * row.params.frequency_penalty - row.params.presence_penalty)
        for index, row in enumerate(rows)
        if row.params.frequency_penalty or row.params.presence_penalty
        for token_id, count in _output_counts(row).items()
    ]
    _add(logits, counted)


def _output_counts(row: PenalisedRow) -> Counter[int]:
    return Counter(row.token_ids[len(row.token_ids) - row.position :])


def _ban(logits: torch.Tensor, rows: Sequence[PenalisedRow]) -> None:
    """Rule out all but the allowed tokens, and end tokens that come too early."""
    for index, row in enumerate(rows):
        allowed = row.params.allowed_token_ids
        if allowed is not None:
            kept = torch.tensor(sorted(allowed), device=logits.device)
            values = logits[index, kept]
            logits[index].fill_(-math.inf)
            logits[index, kept] = values
        if row.position < row.params.min_tokens and row.end_token_ids:
            banned = torch.tensor(sorted(row.end_token_ids), device=logits.device)
            logits[index, banned] = -math.inf


def _add(logits: torch.Tensor, entries: Iterable[_Entry]) -> None:
    """Add each entry's value to its logit."""
    if at := list(entries):
        index = _index(at, logits.device)
        values = _values(at, logits)
        logits.index_put_(index, values, accumulate=True)


def _repeat(logits: torch.Tensor, rows: Sequence[PenalisedRow]) -> None:
    """Shrink what was said already: positive logits are divided, others multiplied.

    The rule of Keskar et al. (2019, CTRL, section 4.1), with transformers' sign rule.
    """
    at = [
        _Entry(index, token_id, row.params.repetition_penalty)
        for index, row in enumerate(rows)
        if row.params.repetition_penalty != 1
        for token_id in dict.fromkeys(row.token_ids)
    ]
    if at:
        index = _index(at, logits.device)
        penalty = _values(at, logits)
        values = logits[index]
        logits[index] = torch.where(values > 0, values / penalty, values * penalty)


def _index(entries: list[_Entry], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    return (
        torch.tensor([entry.row for entry in entries], device=device),
        torch.tensor([entry.token_id for entry in entries], device=device),
    )


def _values(entries: list[_Entry], logits: torch.Tensor) -> torch.Tensor:
    return torch.tensor(
        [entry.value for entry in entries], dtype=logits.dtype, device=logits.device
    )
