"""Log probabilities of tokens, from the logits that the model gave before them.

They are the model's own: nothing that steers sampling has touched the logits. Computed for
the rows that want them and no others, a few rows at a time: a whole log-softmax of a scored
prompt would take as much memory again as its logits.
"""

from typing import NamedTuple

import torch

from failsoft.engine.request import TokenLogprobs

LEAST = -9999.0
"""Stands for minus infinity, which JSON has no number for; OpenAI sends the same."""

_SLICE = 32
"""Rows computed at a time."""


class Wanted(NamedTuple):
    """One token whose log probability is wanted."""

    row: int
    """Row of the logits before it."""
    token_id: int
    num_top: int
    """Likeliest tokens to name beside it, 0..20."""


def score(logits: torch.Tensor, wanted: list[Wanted]) -> list[TokenLogprobs | None]:
    """Return what the model thinks of each token.

    Args:
        logits: ``(num_rows, vocab_size)``, any float dtype; not changed.
        wanted: Tokens, each with its row.

    Returns:
        One for each of *wanted*, in its order; None where the row's logits are not numbers.
    """
    scored: list[TokenLogprobs | None] = []
    for start in range(0, len(wanted), _SLICE):
        scored.extend(_score_slice(logits, wanted[start : start + _SLICE]))
    return scored


def _score_slice(logits: torch.Tensor, wanted: list[Wanted]) -> list[TokenLogprobs | None]:
    rows = logits[[want.row for want in wanted]].float()
    ids = torch.tensor([[want.token_id] for want in wanted], device=logits.device)
    total = rows.logsumexp(dim=-1, keepdim=True)
    own = rows.gather(-1, ids)
    ranks = (rows > own).sum(dim=-1) + 1
    num_top = min(max(want.num_top for want in wanted), rows.shape[-1])
    top = rows.topk(num_top, dim=-1)
    columns = (
        total.isfinite()[:, 0].tolist(),
        (own - total).clamp_min(LEAST)[:, 0].tolist(),
        ranks.tolist(),
        top.indices.tolist(),
        (top.values - total).clamp_min(LEAST).tolist(),
    )
    return [
        TokenLogprobs(
            token_id=want.token_id,
            logprob=logprob,
            rank=rank,
            top=tuple(zip(top_ids[: want.num_top], top_values[: want.num_top], strict=True)),
        )
        if is_number
        else None
        for want, is_number, logprob, rank, top_ids, top_values in zip(
            wanted, *columns, strict=True
        )
    ]
