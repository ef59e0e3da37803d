"""Sampling: edges that equal greedy, noise that belongs to its row, shares that are right."""

import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from failsoft.engine.request import SamplingParams
from failsoft.engine.sampler import SamplingRow, sample, uniform
from failsoft.errors import ForwardError

VOCAB = 50


def row(position: int = 0, seed: int = 7, **settings: Any) -> SamplingRow:
    params = SamplingParams(max_tokens=1, **settings)
    return SamplingRow(params=params, seed=seed, position=position)


def random_logits(num_rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(num_rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.0},
        {"temperature": 1e-9},
        {"temperature": 1.0, "top_k": 1},
        {"temperature": 1.0, "top_p": 1e-9},
        {"temperature": 1.0, "min_p": 1.0},
        {"temperature": 0.01},
    ],
    ids=str,
)
def test_extreme_settings_equal_greedy(settings: dict[str, Any]) -> None:
    """None of them divides by zero or drops the likeliest token."""
    logits = random_logits(20)

    picked = sample(logits, [row(n, **settings) for n in range(20)])

    assert picked == logits.argmax(dim=-1).tolist()


def test_a_row_draws_the_same_token_alone_and_among_others() -> None:
    """Noise is a hash of seed and position: no neighbour, no order, no state."""
    logits = random_logits(8)
    rows = [row(n, seed=100 + n, temperature=1.0, top_p=0.9) for n in range(8)]

    together = sample(logits, rows)
    alone = [sample(logits[n : n + 1], [rows[n]])[0] for n in range(8)]

    assert together == alone


def test_a_neighbour_that_ranks_tokens_leaves_a_seeded_row_alone() -> None:
    """Once one top_p row made all rows draw from a sorted CDF: 49 of 50 tokens changed."""
    logits = random_logits(2)
    neighbour = row(seed=1, temperature=1.0, top_p=0.9)
    rows = [row(seed=seed, temperature=1.0) for seed in range(50)]

    alone = [sample(logits[:1], [plain])[0] for plain in rows]
    together = [sample(logits, [plain, neighbour])[0] for plain in rows]

    assert together == alone


@pytest.mark.parametrize(
    "settings",
    [{"temperature": 0.0}, {"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}],
    ids=str,
)
def test_of_equally_likely_tokens_extreme_settings_take_the_greedy_one(
    settings: dict[str, Any],
) -> None:
    """Exact ties are common in bfloat16; min_p = 1 once drew among them."""
    logits = torch.tensor([[1.0, 3.0, 3.0, 0.0]])

    picked = {sample(logits, [row(n, **settings)])[0] for n in range(40)}

    assert picked == {1}


@pytest.mark.parametrize(
    ("settings", "share"),
    [
        ({"temperature": 1.0}, lambda p: p),
        ({"temperature": 0.5}, lambda p: p**2 / (p**2).sum()),
        ({"temperature": 1.0, "top_k": 3}, lambda p: cut(p, p.topk(3).indices)),
        ({"temperature": 1.0, "top_p": 0.5}, lambda p: cut(p, nucleus(p, 0.5))),
        (
            {"temperature": 1.0, "min_p": 0.2},
            lambda p: cut(p, (p >= 0.2 * p.max()).nonzero()[:, 0]),
        ),
    ],
    ids=["plain", "sharpened", "top_k", "top_p", "min_p"],
)
def test_tokens_are_drawn_by_their_share(settings: dict[str, Any], share: object) -> None:
    """20,000 draws; a token off by over 4 standard errors happens by chance once in 15,000."""
    logits = random_logits(1, seed=3)
    wanted = share(torch.softmax(logits[0], dim=-1))  # type: ignore[operator]
    count = 20_000

    drawn: Counter[object] = Counter()
    for first in range(0, count, 500):
        rows = [row(first + n, **settings) for n in range(500)]
        drawn.update(sample(logits.expand(500, -1), rows))

    for token in range(VOCAB):
        p = float(wanted[token])
        error = math.sqrt(max(p * (1 - p), 1 / count) / count)  # rare ones come by chance
        assert abs(drawn[token] / count - p) <= 4 * error + 1e-6, token


def cut(probs: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    left = torch.zeros_like(probs)
    left[kept] = probs[kept]
    return left / left.sum()


def nucleus(probs: torch.Tensor, top_p: float) -> torch.Tensor:
    ordered, ids = probs.sort(descending=True)
    return ids[: int((ordered.cumsum(0) < top_p).sum()) + 1]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf], ids=["nan", "inf", "all -inf"])
def test_a_row_that_is_no_number_fails_alone(bad: float) -> None:
    """Its neighbours, greedy and noisy, get what they get without it."""
    logits = random_logits(3)
    clean = sample(logits, [row(temperature=0.0), row(), row(temperature=0.8)])
    if bad == -math.inf:
        logits[1] = bad
    else:
        logits[1, 5] = bad

    picked = sample(logits, [row(temperature=0.0), row(), row(temperature=0.8)])

    assert isinstance(picked[1], ForwardError)
    assert picked[1].kind == "bad_logits"
    assert (picked[0], picked[2]) == (clean[0], clean[2])


def test_masked_entries_are_never_drawn() -> None:
    """A vocabulary may be padded with -inf."""
    logits = torch.full((1, VOCAB), -math.inf)
    logits[0, [3, 9]] = 0.0

    drawn = {sample(logits, [row(n, temperature=2.0)])[0] for n in range(200)}

    assert drawn == {3, 9}


def test_rows_of_different_settings_do_not_mix() -> None:
    """top_k of one row cuts nothing off another."""
    logits = random_logits(1).expand(2, -1)
    tight = {sample(logits, [row(n, top_k=2), row(n)])[0] for n in range(300)}
    loose = {sample(logits, [row(n, top_k=2), row(n)])[1] for n in range(300)}

    assert len(tight) == 2
    assert len(loose) > 2


@given(st.integers(0, 2**64 - 1), st.integers(0, 15), st.integers(0, 2**31))
def test_noise_is_in_the_unit_interval(seed: int, choice: int, position: int) -> None:
    """1.0 itself would fall off the end of the CDF."""
    assert 0.0 <= uniform(seed, choice, position) < 1.0


def test_top_k_beyond_the_vocabulary_keeps_all() -> None:
    """No index is out of range."""
    logits = random_logits(1)

    assert sample(logits, [row(top_k=10_000)]) == sample(logits, [row(top_k=VOCAB)])
