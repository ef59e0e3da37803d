"""Greedy output of the engine against ``transformers.generate``, token for token.

32 prompts of 1 to 900 tokens at once, a KV pool for about six of them, step budgets
of 7 and 512, prefix cache on and off, cold and warm. A difference counts only where
the reference's own two best logits are 1e-4 apart or more.
"""

import random
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import torch

from benchmarks.engine_session import load, open_engine, run_batch
from benchmarks.proof import Line
from benchmarks.workload import Item, load_workload
from failsoft.config.engine import EngineConfig

EXCUSED_GAP = 1e-4
_PASSES = ("cold", "warm")
_EDGES = (1, 2, 15, 16, 17, 31, 32, 33, 899, 900)
_SHORT = (530, 1, 16, 17, 33, 60)
"""A prompt longer than Gemma's window that fills the pool, and short ones that must give way."""
_SHORT_TOKENS = 24
SHORT_WAYS = {"smollm2-135m-instruct": ((32, True), (512, False)), "gemma-3-270m": ((512, False),)}
"""Step budget, and whether prefixes are cached, in the short form: prompts in many pieces with
prefixes, and in few without; for Gemma, whose output layer is four times as large, the one that
its window makes hardest."""
_TEXT = {"smollm2-135m-instruct": "documents", "gemma-3-270m": "gemma_ragged"}
"""Workloads whose prompts give each model real text to continue."""


class Reference(NamedTuple):
    """What ``generate`` says after one prompt."""

    tokens: list[int]
    gaps: list[float]
    """Distance of the two best logits at each token."""


class Outcome(NamedTuple):
    """One run of all prompts through the engine."""

    what: str
    num_different: int
    num_excused: int
    num_preemptions: int
    num_hit_tokens: int
    is_clean: bool
    """Every block free and no error."""


def make_items(model: str, *, is_short: bool) -> list[Item]:
    """Return prompts of real text, some at block edges, the rest of random length."""
    text = [token for item in load_workload(_TEXT[model]).items for token in item.prompt_ids]
    rng = random.Random(20261129)
    lengths = [*_EDGES, *(rng.randrange(3, 900) for _ in range(32 - len(_EDGES)))]
    if is_short:
        lengths = [*_SHORT]
    items = []
    for length in lengths:
        start = rng.randrange(len(text) - length)
        prompt = tuple(text[start : start + length])
        items.append(Item(prompt_ids=prompt, output_len=_SHORT_TOKENS if is_short else 64))
    return items


def generate_reference(model: Any, items: list[Item]) -> list[Reference]:
    """Return ``generate``'s greedy continuation of each prompt, one at a time."""
    references = []
    for item in items:
        with torch.inference_mode():
            out = model.generate(
                input_ids=torch.tensor([item.prompt_ids]),
                attention_mask=torch.ones(1, len(item.prompt_ids), dtype=torch.long),
                max_new_tokens=item.output_len,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
                output_logits=True,
                return_dict_in_generate=True,
            )
        best = [logits[0].topk(2).values.tolist() for logits in out.logits]
        tokens = out.sequences[0, len(item.prompt_ids) :].tolist()
        references.append(Reference(tokens, [first - second for first, second in best]))
    return references


def compare(references: list[Reference], outputs: list[list[int]]) -> tuple[int, int]:
    """Return (prompts that differ, those of them excused by the reference's own doubt)."""
    different = excused = 0
    for reference, output in zip(references, outputs, strict=True):
        if reference.tokens == output:
            continue
        different += 1
        pairs = zip(reference.tokens, output, reference.gaps, strict=True)
        first_gap = next(gap for want, have, gap in pairs if want != have)
        excused += first_gap < EXCUSED_GAP
    return different, excused


def measure(model: str, *, is_short: bool) -> Iterator[Line]:
    """Yield one line for each configuration of *model*, and one for preemption."""
    items = make_items(model, is_short=is_short)
    count = len(items)
    references = generate_reference(load(model, "float32").model, items)
    mean = sum(len(item.prompt_ids) + item.output_len for item in items) / count
    largest = max(len(item.prompt_ids) + item.output_len for item in items)
    # In short: the longest and a few small ones that begin beside it, with no room to grow.
    room = largest + 64 if is_short else max(largest, int(6 * mean))
    preemptions = 0
    for budget, is_cached in SHORT_WAYS[model] if is_short else product((7, 512), (True, False)):
        # Without a prefix cache a second pass is the first once more: the whole form alone does it.
        passes = ("cold",) if is_short and not is_cached else _PASSES
        outcomes = _run(
            model, items, references, budget=budget, cached=is_cached, room=room, passes=passes
        )
        for outcome in outcomes:
            preemptions += outcome.num_preemptions
            yield _line(model, outcome, count)
    # With room for all, the second pass is served from the prefix cache.
    everything = int(mean * count * 1.2) + 32 * count
    outcomes = _run(model, items, references, budget=512, cached=True, room=everything)
    for outcome in outcomes:
        yield _line(model, outcome, count)
    yield Line(
        must_hold=f"{model}: the second pass is served from the prefix cache",
        figure=f"{outcomes[1].num_hit_tokens} tokens hit",
        has_passed=outcomes[1].num_hit_tokens > 0,
    )
    yield Line(
        must_hold=f"{model}: the pool is small enough to preempt",
        figure=f"{preemptions} preemptions",
        has_passed=preemptions > 0,
    )


def _run(
    model: str,
    items: list[Item],
    references: list[Reference],
    *,
    budget: int,
    cached: bool,
    room: int,
    passes: tuple[str, ...] = _PASSES,
) -> list[Outcome]:
    config = EngineConfig(
        max_running=len(items),
        max_step_tokens=budget,
        prefix_cache=cached,
        num_kv_blocks=-(-room // 16),
    )
    outcomes = []
    with open_engine(model, dtype="float32", config=config) as engine:
        preempted = hits = 0
        for warmth in passes:
            batch = run_batch(engine, items, tag=warmth)
            stats = engine.stats()
            different, excused = compare(references, batch.outputs)
            outcome = Outcome(
                what=f"budget {budget}, prefix cache {'on' if cached else 'off'}, {warmth}, "
                f"KV for {room} tokens",
                num_different=different,
                num_excused=excused,
                num_preemptions=stats.preemptions_total - preempted,
                num_hit_tokens=stats.prefix_hit_tokens_total - hits,
                is_clean=stats.num_blocks_used == 0 and not any(batch.errors),
            )
            preempted, hits = stats.preemptions_total, stats.prefix_hit_tokens_total
            outcomes.append(outcome)
    return outcomes


def _line(model: str, outcome: Outcome, count: int) -> Line:
    return Line(
        must_hold=f"{model} equals generate ({outcome.what})",
        figure=f"{outcome.num_different} of {count} differ, {outcome.num_excused} excused, "
        f"{outcome.num_preemptions} preemptions, {outcome.num_hit_tokens} cached tokens",
        has_passed=outcome.num_different == outcome.num_excused and outcome.is_clean,
    )
