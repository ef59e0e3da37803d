"""From logits to tokens, row by row in one batched pass.

Order: grammar mask → bans → logit_bias → penalties → temperature → top_k → top_p → min_p → pick.
A stage that no row uses costs nothing. Noise is counter-based: the uniform of a
pick is a hash of (seed, choice, output position), so neither batch neighbours nor a
preemption shift it.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from failsoft.engine import penalties
from failsoft.engine.request import SamplingParams
from failsoft.errors import ForwardError


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRow:
    """How one row of logits is to be sampled."""

    params: SamplingParams
    seed: int
    position: int
    """Index of the output token that is picked, from 0."""
    token_ids: Sequence[int] = ()
    """Prompt and output so far; read by penalties alone."""
    end_token_ids: frozenset[int] = frozenset()
    """Tokens that would end the request."""
    mask: bytes | None = None
    """The tokens that the request's grammar allows (`failsoft.engine.structured.grammar`)."""


class _Candidates(NamedTuple):
    """Probabilities and the token ids they stand for, each ``(num_rows, num_candidates)``.

    ``token_ids`` is None while candidates are in vocabulary order.
    """

    probs: torch.Tensor
    token_ids: torch.Tensor | None


def uniform(seed: int, choice: int, position: int) -> float:
    """Return the noise of one pick, in [0, 1): 53 bits of BLAKE2b over the three."""
    data = b"".join(
        (
            seed.to_bytes(16, "little", signed=True),
            choice.to_bytes(4, "little"),
            position.to_bytes(8, "little"),
        )
    )
    digest = hashlib.blake2b(data, digest_size=8, person=b"failsoft-noise").digest()
    return (int.from_bytes(digest, "little") >> 11) / 2**53


def sample(logits: torch.Tensor, rows: list[SamplingRow]) -> list[int | ForwardError]:
    """Pick one token for each row.

    Args:
        logits: ``(num_rows, vocab_size)``, any float dtype; not changed.
        rows: One for each row of *logits*.

    Returns:
        A token id for each row, or a ForwardError for a row whose logits are not numbers, or
        that has ruled out every token.
    """
    raw, logits = logits, _adjusted(logits, rows)
    best = logits.max(dim=-1)
    # The maximum carries NaN and +inf, and a row of -inf alone: one pass finds all three.
    is_finite = best.values.isfinite().tolist()
    is_number = is_finite if logits is raw else raw.amax(dim=-1).isfinite().tolist()
    picked: list[int | ForwardError] = list(best.indices.tolist())
    for index, finite in enumerate(is_finite):
        if not is_number[index]:
            picked[index] = ForwardError("the model's logits are not numbers", kind="bad_logits")
            is_finite[index] = False  # a ban may have hidden it
        elif not finite:
            picked[index] = ForwardError(
                "the request's limits leave no token to sample; allow more", kind="no_token"
            )
    is_noisy = [
        finite and not row.params.is_greedy for finite, row in zip(is_finite, rows, strict=True)
    ]
    # Sorting moves candidates along the CDF that the noise inverts, so rows that need it are
    # picked apart from rows that do not: a neighbour's top_p must not change a seeded token.
    for is_sorted in (False, True):
        group = [
            index
            for index, row in enumerate(rows)
            if is_noisy[index] and row.params.has_top_cut == is_sorted
        ]
        if group:
            chosen = [rows[index] for index in group]
            tokens = _sample_noisy(logits[group].float(), chosen, is_sorted=is_sorted)
            for index, token in zip(group, tokens, strict=True):
                picked[index] = token
    return picked


def _adjusted(logits: torch.Tensor, rows: list[SamplingRow]) -> torch.Tensor:
    """Return *logits* as the rows want them changed; itself, unread, when none wants anything."""
    asking = [index for index, row in enumerate(rows) if penalties.is_asking(row)]
    if not asking:
        return logits
    adjusted = logits.to(torch.float32, copy=True)
    changed = adjusted[asking]
    penalties.apply(changed, [rows[index] for index in asking])
    adjusted[asking] = changed
    return adjusted


def _sample_noisy(logits: torch.Tensor, rows: list[SamplingRow], *, is_sorted: bool) -> list[int]:
    """Pick from ``(num_rows, vocab_size)`` float32 logits by inverting each row's CDF."""
    device = logits.device
    params = [row.params for row in rows]
    temperature = torch.tensor([p.temperature for p in params], device=device)[:, None]
    probs = torch.softmax(logits / temperature, dim=-1)
    candidates = _keep_top(probs, params) if is_sorted else _Candidates(probs, None)
    if any(p.min_p > 0 for p in params):
        candidates = _keep_min_p(candidates, params)
    # float64: a float32 running sum over 262,144 entries loses the tail.
    cumulative = candidates.probs.cumsum(dim=-1, dtype=torch.float64)
    noise = [uniform(row.seed, row.params.choice_index, row.position) for row in rows]
    target = torch.tensor(noise, dtype=torch.float64, device=device)[:, None] * cumulative[:, -1:]
    index = torch.searchsorted(cumulative, target, right=True)
    # Rounding may put the target on the total; the last candidate with mass is then meant.
    last = (candidates.probs > 0).cumsum(dim=-1).argmax(dim=-1, keepdim=True)
    index = torch.minimum(index, last)
    if candidates.token_ids is not None:
        index = candidates.token_ids.gather(-1, index)
    return [int(token) for token in index[:, 0].tolist()]


def _keep_top(probs: torch.Tensor, params: list[SamplingParams]) -> _Candidates:
    """Sort by probability and zero what top_k, then top_p of what is left, cut off."""
    device, vocab_size = probs.device, probs.shape[-1]
    ordered, token_ids = probs.sort(dim=-1, descending=True, stable=True)
    top_k = torch.tensor([p.top_k or vocab_size for p in params], device=device)[:, None]
    ordered = ordered.masked_fill(torch.arange(vocab_size, device=device) >= top_k, 0.0)
    top_p = torch.tensor([p.top_p for p in params], dtype=torch.float64, device=device)[:, None]
    before = ordered.cumsum(dim=-1, dtype=torch.float64)
    total = before[:, -1:].clone()
    before = before - ordered
    # The likeliest token has nothing before it and always stays.
    ordered = ordered.masked_fill((before >= top_p * total) & (before > 0), 0.0)
    return _Candidates(ordered, token_ids)


def _keep_min_p(candidates: _Candidates, params: list[SamplingParams]) -> _Candidates:
    """Zero what has less than min_p of the likeliest token's probability."""
    probs = candidates.probs
    min_p = torch.tensor([p.min_p for p in params], device=probs.device)[:, None]
    floor = min_p * probs.max(dim=-1, keepdim=True).values
    return _Candidates(probs.masked_fill(probs < floor, 0.0), candidates.token_ids)
