"""The proof, at every load, that our forward computes what the model's own does.

The same prompts go through the model's plain forward, one by one, and through the
engine's: packed together, cut into chunks, KV scattered over shuffled blocks, single
tokens mixed with chunks, with block edges and windows crossed. Logits at the end of
every chunk must agree. A model that fails is refused, with the error measured.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from failsoft.engine.attention.site import AttentionSite
from failsoft.engine.batch import PackRow

FLOAT32_LIMIT = 1e-3
"""Largest error allowed in float32, in standard deviations of the reference logits.

Different orders of summation give 1e-6 to 1e-4; a key too many or too few gives 0.1 and more."""

LOW_PRECISION_LIMIT = 0.25
"""The least limit in bfloat16 or float16, where `rounding_noise` says how much is rounding.

Measured with AMX on both catalogue models: correct forwards reach 0.4 of that noise, one
with a key too few 2.5 of it and more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One prompt, and the positions whose logits are compared, in growing order."""

    token_ids: list[int]
    cuts: tuple[int, ...]
    """The prompt is fed in pieces that end before these positions; the last is its length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTestResult:
    """How far our forward is from the model's own."""

    max_error: float
    """Largest logit difference, in standard deviations of the reference logits."""
    limit: float

    @property
    def has_passed(self) -> bool:
        """Whether the error is within the limit; NaN is not, and a limit without end is none."""
        return self.max_error <= self.limit < math.inf


def make_probes(
    *, vocab_size: int, block_size: int, sites: tuple[AttentionSite, ...], max_model_len: int
) -> list[Probe]:
    """Return prompts of random ids: tiny, block-edged, and longer than every window."""
    rng = random.Random(0)  # noqa: S311 the same prompts at every load
    longest = 4 * block_size + 5
    for window in {site.window for site in sites if site.window is not None}:
        if window < max_model_len:
            longest = max(longest, window + block_size + 3)
    lengths = (2, block_size, block_size + 1, longest)
    probes = []
    for length in sorted({max(2, min(length, max_model_len)) for length in lengths}):
        inner = {length // 3, length // 2 + 1, length - 2, length - 1}
        cuts = (*sorted(cut for cut in inner if 0 < cut < length), length)
        token_ids = [rng.randrange(vocab_size) for _ in range(length)]
        probes.append(Probe(token_ids=token_ids, cuts=cuts))
    return probes


def reference_logits(model: Any, probes: list[Probe], device: torch.device) -> list[torch.Tensor]:
    """Return ``(num_cuts, vocab_size)`` logits of the model's own forward for each probe."""
    collected = []
    can_pick = bool(model._supports_logits_to_keep())
    for probe in probes:
        rows = torch.tensor([cut - 1 for cut in probe.cuts], device=device)
        kwargs = {"logits_to_keep": rows} if can_pick else {}
        with torch.inference_mode():
            input_ids = torch.tensor([probe.token_ids], device=device)
            logits = model(input_ids=input_ids, use_cache=False, **kwargs).logits[0]
        collected.append((logits if can_pick else logits[rows]).float())
    return collected


def rounding_noise(
    model: Any, probes: list[Probe], device: torch.device, reference: list[torch.Tensor]
) -> float:
    """Return how far another rounding alone moves the logits, as `max_difference` says it.

    No fixed limit fits low precision: in bfloat16 one model's logits move by 0.2 standard
    deviations when products are summed in another order, another's by 1.5. So the model's own
    forward runs once more with every module's output moved at random by up to its last bit.

    Args:
        model: Its own attention is still set.
        probes: What *reference* was computed from.
        device: Where the model is.
        reference: From `reference_logits`.
    """
    generator = torch.Generator(device=device).manual_seed(0)

    def shake(_module: Any, _inputs: Any, output: Any) -> Any:
        if not isinstance(output, torch.Tensor) or not output.is_floating_point():
            return output
        spread = torch.rand(output.shape, generator=generator, device=device) * 2 - 1
        unit_roundoff = torch.finfo(output.dtype).eps / 2
        return (output.float() * (1 + spread * unit_roundoff)).to(output.dtype)

    leaves = [module for module in model.modules() if not any(module.children())]
    hooks = [leaf.register_forward_hook(shake) for leaf in leaves]
    try:
        return max_difference(reference, reference_logits(model, probes, device))
    finally:
        for hook in hooks:
            hook.remove()


def packed_logits(
    forward: Callable[[list[PackRow]], torch.Tensor],
    probes: list[Probe],
    *,
    block_size: int,
    num_blocks: int,
) -> list[torch.Tensor]:
    """Return the same logits from the engine's forward: packed, chunked and scattered.

    Args:
        forward: ``ModelRunner.forward``.
        probes: What to feed.
        block_size: Tokens in a block.
        num_blocks: Blocks of the pool; enough for all probes at once.
    """
    order = list(range(num_blocks))
    random.Random(1).shuffle(order)  # noqa: S311
    tables = []
    for probe in probes:
        count = -(-len(probe.token_ids) // block_size)
        tables.append(tuple(order.pop() for _ in range(count)))
    collected: list[list[torch.Tensor]] = [[] for _ in probes]
    for stage in range(max(len(probe.cuts) for probe in probes)):
        rows, owners = [], []
        # The shorter probes run out of pieces first, so late stages mix ends with chunks.
        for index, probe in enumerate(probes):
            if stage < len(probe.cuts):
                start = probe.cuts[stage - 1] if stage else 0
                owners.append(index)
                row = PackRow(
                    token_ids=probe.token_ids[start : probe.cuts[stage]],
                    start=start,
                    blocks=tables[index],
                    num_logits=1,
                )
                rows.append(row)
        if stage % 2:
            rows.reverse()
            owners.reverse()
        for owner, logits in zip(owners, forward(rows), strict=True):
            collected[owner].append(logits.float())
    return [torch.stack(pieces) for pieces in collected]


def compare(
    reference: list[torch.Tensor], measured: list[torch.Tensor], *, noise: float | None
) -> SelfTestResult:
    """Return how far *measured* is off, and how far it may be.

    Args:
        reference: From `reference_logits`.
        measured: From `packed_logits`.
        noise: From `rounding_noise`; None for a model computed in float32.
    """
    limit = FLOAT32_LIMIT if noise is None else max(LOW_PRECISION_LIMIT, noise)
    return SelfTestResult(max_error=max_difference(reference, measured), limit=limit)


def max_difference(reference: list[torch.Tensor], measured: list[torch.Tensor]) -> float:
    """Return the largest difference over all probes, in standard deviations of the reference."""
    worst = 0.0
    for want, have in zip(reference, measured, strict=True):
        # Masked vocabulary entries are -inf on both sides.
        known = want.isfinite()
        if bool(want.isnan().any()) or not bool(known.any()):
            return float("inf")  # NaN on both sides is no agreement
        if not bool((known == have.isfinite()).all()):
            return float("inf")
        spread = float(want[known].std().clamp_min(1e-6))
        worst = max(worst, float((want[known] - have[known]).abs().max()) / spread)
    return worst
