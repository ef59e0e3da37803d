"""From the logits of one forward to the result of each row of its plan."""

from collections.abc import Iterator

import torch

from failsoft.engine.logprobs import Wanted, score
from failsoft.engine.request import TokenLogprobs
from failsoft.engine.sampler import SamplingRow, sample
from failsoft.engine.sequence import PlannedRow, RowResult, Scored, StepPlan
from failsoft.errors import ForwardError


def row_results(plan: StepPlan, logits: torch.Tensor) -> list[RowResult]:
    """Sample the rows that are due, and score what they want scored.

    Args:
        plan: What ran.
        logits: ``(sum of num_logits, vocab_size)``, the rows' logits one behind the other.

    Returns:
        One result for each row of *plan*, in its order.
    """
    picked = _pick(plan, logits)
    if not any(map(_wants_logprobs, plan.rows)):
        return list(picked)
    wanted: list[Wanted] = []
    end = 0
    for row, token in zip(plan.rows, picked, strict=True):
        end += row.num_logits
        wanted.extend(_wanted_of(row, token, end - row.num_logits))
    scored = iter(score(logits, wanted))
    return [_result(row, token, scored) for row, token in zip(plan.rows, picked, strict=True)]


def _pick(plan: StepPlan, logits: torch.Tensor) -> list[int | ForwardError | None]:
    """Return a token for each row that is due, and None for the others."""
    due: list[SamplingRow] = []
    at: list[int] = []
    faults: dict[int, ForwardError] = {}
    end = 0
    for place, row in enumerate(plan.rows):
        end += row.num_logits
        if not row.is_sampling:
            continue
        try:
            due.append(_sampling_row(row))
        except ForwardError as exc:  # of its grammar alone
            faults[place] = exc
            continue
        at.append(end - 1)
    picked = iter(sample(logits if len(at) == len(logits) else logits[at], due) if due else ())
    return [
        faults.get(place) or (next(picked) if row.is_sampling else None)
        for place, row in enumerate(plan.rows)
    ]


def _sampling_row(row: PlannedRow) -> SamplingRow:
    sequence = row.sequence
    return SamplingRow(
        params=sequence.request.sampling,
        seed=sequence.seed,
        position=sequence.num_output,
        token_ids=sequence.tokens,
        end_token_ids=sequence.end_token_ids,
        mask=None if sequence.grammar is None else sequence.grammar.allowed(),
    )


def _wants_logprobs(row: PlannedRow) -> bool:
    is_wanted = row.sequence.request.sampling.logprobs is not None
    return bool(row.num_scored) or (is_wanted and row.is_sampling)


def _wanted_of(row: PlannedRow, token: int | ForwardError | None, first: int) -> list[Wanted]:
    """Return what is to be scored from *row*'s logits, which start at row *first*."""
    params = row.sequence.request.sampling
    wanted = []
    if row.num_scored:
        num_top = params.prompt_logprobs or 0
        wanted = [Wanted(first + n, token_id, num_top) for n, token_id in enumerate(row.scored_ids)]
    if params.logprobs is not None and isinstance(token, int):
        wanted.append(Wanted(first + row.num_logits - 1, token, params.logprobs))
    return wanted


def _result(
    row: PlannedRow, token: int | ForwardError | None, scored: Iterator[TokenLogprobs | None]
) -> RowResult:
    """Return *row*'s result, taking its share of *scored*."""
    has_logprobs = row.sequence.request.sampling.logprobs is not None and isinstance(token, int)
    prompt = [next(scored) for _ in range(row.num_scored)]
    logprobs = next(scored) if has_logprobs else None
    if isinstance(token, ForwardError):
        return token
    sound = tuple(one for one in prompt if one is not None)
    if len(sound) < len(prompt):
        return ForwardError("the model's logits are not numbers", kind="bad_logits")
    if not row.num_scored and logprobs is None:
        return token
    return Scored(token, logprobs, sound)
