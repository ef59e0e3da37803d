"""Bans, bias and penalties: each by its formula, in order, on its own row alone."""

import math
from typing import Any

import pytest
import torch

from failsoft.engine import penalties
from failsoft.engine.request import SamplingParams
from failsoft.engine.sampler import SamplingRow, sample
from failsoft.errors import ForwardError

VOCAB = 12
PROMPT = [1, 2]
OUTPUT = [3, 3, 4]


def row(**settings: Any) -> SamplingRow:
    """A greedy row that has said OUTPUT after PROMPT."""
    params = SamplingParams(**{"max_tokens": 50, "temperature": 0.0, **settings})
    return SamplingRow(
        params=params,
        seed=7,
        position=len(OUTPUT),
        token_ids=[*PROMPT, *OUTPUT],
        end_token_ids=frozenset({0, 11}),
    )


def order_of(logits: torch.Tensor, changed: SamplingRow) -> list[float]:
    """The row's logits as the sampler sees them."""
    adjusted = logits[None].clone()
    assert penalties.is_asking(changed)
    penalties.apply(adjusted, [changed])
    return [float(value) for value in adjusted[0]]


LOGITS = torch.tensor([0.5, 2.0, -1.0, 3.0, -2.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 4.0])


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ({"presence_penalty": 0.5}, {3: 2.5, 4: -2.5}),
        ({"frequency_penalty": 0.5}, {3: 2.0, 4: -2.5}),
        ({"frequency_penalty": -1, "presence_penalty": 1}, {3: 4.0, 4: -2.0}),
        ({"repetition_penalty": 2.0}, {1: 1.0, 2: -2.0, 3: 1.5, 4: -4.0}),
        ({"logit_bias": {5: 7.5, 3: -100}}, {5: 7.5, 3: -97.0}),
        ({"min_tokens": 4}, {0: -math.inf, 11: -math.inf}),
        (
            {"allowed_token_ids": frozenset({5, 3})},
            dict.fromkeys(range(12), -math.inf) | {5: 0, 3: 3},
        ),
        # Bias, then repetition, then the counts: (3 + 1) / 2 - 2 * 0.5 - 0.25.
        (
            {
                "logit_bias": {3: 1.0},
                "repetition_penalty": 2.0,
                "frequency_penalty": 0.5,
                "presence_penalty": 0.25,
            },
            {1: 1.0, 2: -2.0, 3: 0.75, 4: -4.75},
        ),
    ],
    ids=lambda value: "+".join(map(str, value)),
)
def test_each_changes_the_logits_by_its_formula(
    settings: dict[str, Any], changes: dict[int, float]
) -> None:
    """Presence and frequency count the output; repetition the prompt too."""
    expected = [changes.get(n, float(LOGITS[n])) for n in range(VOCAB)]

    assert order_of(LOGITS, row(**settings)) == pytest.approx(expected)


def test_a_neighbour_that_asks_for_nothing_keeps_its_logits() -> None:
    """Greedy and seeded rows pick what they pick alone, to the token."""
    logits = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(0))
    before = logits.clone()
    plain, noisy = row(), row(temperature=1.0)
    busy = row(logit_bias={5: 100}, repetition_penalty=1.5, min_tokens=9)

    alone = [sample(logits[:1], [plain])[0], sample(logits[2:], [noisy])[0]]
    together = sample(logits, [plain, busy, noisy])

    assert together == [alone[0], 5, alone[1]]
    assert torch.equal(logits, before), "log probabilities are taken from these"


def test_what_changes_nothing_is_not_asked_for() -> None:
    """The values that other clients send by default take the short way."""
    neutral = row(presence_penalty=0.0, frequency_penalty=0, repetition_penalty=1, min_tokens=3)

    assert not penalties.is_asking(neutral)


def test_a_row_that_rules_out_every_token_fails_alone() -> None:
    """Its neighbour goes on; the error says that it is the request's own doing."""
    logits = LOGITS.expand(2, -1)
    stuck = row(allowed_token_ids=frozenset({0, 11}), min_tokens=10)

    failed, picked = sample(logits, [stuck, row()])

    assert isinstance(failed, ForwardError)
    assert failed.kind == "no_token"
    assert picked == 11


def test_a_ban_does_not_hide_logits_that_are_not_numbers() -> None:
    """One NaN among the banned tokens: the row's KV cannot be trusted."""
    logits = LOGITS.clone()[None]
    logits[0, 9] = math.nan

    (failed,) = sample(logits, [row(allowed_token_ids=frozenset({3}))])

    assert isinstance(failed, ForwardError)
    assert failed.kind == "bad_logits"


def test_choices_under_one_seed_draw_different_noise() -> None:
    """The same seed twice gives the same four tokens; four choices are not one."""
    logits = torch.zeros(4, 1000)
    rows = [row(temperature=1.0, choice_index=n) for n in range(4)]

    picked = sample(logits, rows)

    assert picked == sample(logits, rows)
    assert len(set(picked)) == 4
