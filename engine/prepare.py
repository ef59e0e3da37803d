"""From a loaded model to a runner that has proven itself.

In order: what the engine cannot serve is refused by name; linear layers are packed,
each checked against the plain product; attention is traced; the KV pool is sized; the
model's own attention gives reference logits; ours is set and the self-test compares.
8-bit layers come last: a last bit that moves an 8-bit activation by one would hide what the
self-test looks for, and their products are exact, so they are checked one by one.
Any failure is an UnsupportedModelError that says what was measured.
"""

import logging
from dataclasses import dataclass
from typing import Any

import torch

from failsoft.config.engine import EngineConfig
from failsoft.engine.attention.backends import candidates
from failsoft.engine.attention.dispatch import IMPLEMENTATION, Backend
from failsoft.engine.attention.kv_pool import KVPool
from failsoft.engine.attention.site import AttentionSite
from failsoft.engine.attention.trace import trace_sites
from failsoft.engine.int8 import quantise_linears
from failsoft.engine.linear import compute_dtype, own_weights, pack_linears
from failsoft.engine.pool_size import blocks_in_pool
from failsoft.engine.runner import ModelRunner
from failsoft.engine.self_test import (
    Probe,
    SelfTestResult,
    compare,
    make_probes,
    packed_logits,
    reference_logits,
    rounding_noise,
)
from failsoft.errors import ConfigError, UnsupportedModelError

logger = logging.getLogger(__name__)

_INT8_LIMIT = 0.3
"""Largest error of an 8-bit product, in standard deviations; 0.02 to 0.1 is usual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedModel:
    """A runner, and what the engine around it must know."""

    runner: ModelRunner
    sites: tuple[AttentionSite, ...]
    backend_name: str
    num_blocks: int
    max_model_len: int
    stored_dtype: str
    compute_dtype: str
    self_test: SelfTestResult


def prepare(
    model: Any,
    *,
    name: str,
    vocab_size: int,
    max_model_len: int,
    is_int8: bool = False,
    config: EngineConfig,
) -> PreparedModel:
    """Make *model* servable in place and prove it.

    Args:
        model: A transformers causal language model in eval mode, on its device.
        name: For errors and logs.
        vocab_size: Width of its logits.
        max_model_len: The model's own limit in tokens.
        is_int8: Whether its linear layers become 8-bit ones.
        config: The engine's settings.

    Raises:
        UnsupportedModelError: It cannot be served right.
        ConfigError: The KV pool cannot hold what was asked for.
    """
    refuse_known_unfit(model, name=name, max_model_len=config.max_model_len or max_model_len)
    device = next(model.parameters()).device
    stored = model.dtype
    computed = compute_dtype(stored, device)
    if device.type == "cpu":
        if not is_int8:
            _pack(model, computed, name=name)
        own_weights(model, computed)
    trace_ids = torch.arange(1, 9, device=device)[None, :] % vocab_size
    limit = config.max_model_len or max_model_len
    sites = trace_sites(model, name=name, max_model_len=limit, token_ids=trace_ids)
    num_blocks, limit = size_pool(sites, config=config, dtype=stored, max_model_len=limit)
    probes = make_probes(
        vocab_size=vocab_size, block_size=config.block_size, sites=sites, max_model_len=limit
    )
    reference = reference_logits(model, probes, device)
    noise = None
    if computed != torch.float32:
        noise = rounding_noise(model, probes, device, reference)
    model.set_attn_implementation(IMPLEMENTATION)
    runner, backend, result = _first_that_passes(
        model,
        probes,
        reference,
        sites=sites,
        block_size=config.block_size,
        noise=noise,
        dtype=computed,
        device=device,
        name=name,
    )
    if is_int8:
        _quantise(model, computed, name=name)
        if device.type == "cpu":
            _pack(model, computed, name=name)
    runner.pool = KVPool(
        sites=sites,
        num_blocks=num_blocks,
        block_size=config.block_size,
        dtype=stored,
        device=device,
    )
    logger.info("%s: self-test error %.1e (limit %.0e)", name, result.max_error, result.limit)
    return PreparedModel(
        runner=runner,
        sites=sites,
        backend_name=backend.name,
        num_blocks=num_blocks,
        max_model_len=limit,
        stored_dtype="int8" if is_int8 else str(stored).removeprefix("torch."),
        compute_dtype=str(computed).removeprefix("torch."),
        self_test=result,
    )


def _quantise(model: Any, dtype: torch.dtype, *, name: str) -> None:
    """Make the linear layers 8-bit ones, and refuse a model that has none or loses too much."""
    error = quantise_linears(model, dtype)
    if error is None:
        raise UnsupportedModelError(
            model=name,
            reason="int8 needs plain linear layers and it has none; choose another dtype",
        )
    if not error <= _INT8_LIMIT:
        raise UnsupportedModelError(
            model=name,
            reason=f"an 8-bit product is off by {error:.2g} standard deviations (limit "
            f"{_INT8_LIMIT:.2g}): one weight of a channel dwarfs the others; choose bfloat16",
        )


def _pack(model: Any, dtype: torch.dtype, *, name: str) -> None:
    """Pack the linear layers, and refuse to go on with products that are not the plain ones."""
    limit = 1e-3 if dtype == torch.float32 else 0.1
    error = pack_linears(model, dtype)
    if not error <= limit:
        raise UnsupportedModelError(
            model=name,
            reason=f"packed matrix products are off by {error:.2g} standard deviations "
            f"(limit {limit:.2g}); this torch build miscomputes them on this CPU",
        )


def refuse_known_unfit(model: Any, *, name: str, max_model_len: int) -> None:
    """Refuse what a short self-test could not catch, and name the reason.

    Raises:
        UnsupportedModelError: The model keeps state that is not KV, or its rotary
            embedding changes with the longest sequence of a batch.
    """
    if getattr(model, "_is_stateful", False):
        raise UnsupportedModelError(
            model=name, reason="its layers keep recurrent state, which KV blocks cannot hold"
        )
    for config in {id(c): c for c in (model.config, model.config.get_text_config())}.values():
        rope = getattr(config, "rope_parameters", None) or {}
        tables = [table for table in (rope, *rope.values()) if isinstance(table, dict)]
        for kind in {table.get("rope_type") for table in tables} & {"dynamic", "longrope"}:
            original = getattr(config, "original_max_position_embeddings", None) or next(
                (
                    table["original_max_position_embeddings"]
                    for table in tables
                    if "original_max_position_embeddings" in table
                ),
                config.max_position_embeddings,
            )
            if max_model_len > original:
                raise UnsupportedModelError(
                    model=name,
                    reason=f"its {kind} rotary embedding depends on the longest sequence of a "
                    f"batch beyond {original} tokens; serve it with max_model_len <= {original}",
                )


def size_pool(
    sites: tuple[AttentionSite, ...],
    *,
    config: EngineConfig,
    dtype: torch.dtype,
    max_model_len: int,
) -> tuple[int, int]:
    """Return (blocks of the pool, longest request that fits it).

    Raises:
        ConfigError: ``max_model_len`` was set and does not fit.
    """
    kv_bytes_per_token = sum(site.kv_bytes_per_token(dtype) for site in sites)
    num_blocks, pool_bytes = blocks_in_pool(
        config, kv_bytes_per_token=kv_bytes_per_token, max_model_len=max_model_len
    )
    capacity = num_blocks * config.block_size + 1
    if config.max_model_len is not None and config.max_model_len > capacity:
        raise ConfigError(
            key="max_model_len",
            value=config.max_model_len,
            allowed=f"at most {capacity}: {num_blocks} KV blocks of {config.block_size} tokens "
            f"take {pool_bytes / 2**20:.0f} MiB; give it more KV blocks",
        )
    if max_model_len > capacity:
        logger.warning(
            "requests are limited to %d tokens (the model allows %d): the KV pool has %d blocks",
            capacity,
            max_model_len,
            num_blocks,
        )
    return num_blocks, min(max_model_len, capacity)


def _first_that_passes(
    model: Any,
    probes: list[Probe],
    reference: list[torch.Tensor],
    *,
    sites: tuple[AttentionSite, ...],
    block_size: int,
    noise: float | None,
    dtype: torch.dtype,
    device: torch.device,
    name: str,
) -> tuple[ModelRunner, Backend, SelfTestResult]:
    """Return the first backend whose forward agrees with the reference."""
    num_blocks = sum(-(-len(probe.token_ids) // block_size) for probe in probes)
    reasons = []
    for backend in candidates(device=device, dtype=dtype, sites=sites):
        # A pool in the compute dtype: the test is about the rules, not about KV rounding.
        pool = KVPool(
            sites=sites, num_blocks=num_blocks, block_size=block_size, dtype=dtype, device=device
        )
        runner = ModelRunner(model=model, sites=sites, pool=pool, backend=backend, device=device)
        try:
            measured = packed_logits(
                runner.forward, probes, block_size=block_size, num_blocks=num_blocks
            )
        except Exception as exc:  # third-party model code may raise anything
            logger.debug("%s: backend %s raised", name, backend.name, exc_info=exc)
            reasons.append(f"{backend.name} attention raised {type(exc).__name__}: {exc}")
            continue
        result = compare(reference, measured, noise=noise)
        if result.has_passed:
            return runner, backend, result
        reasons.append(
            f"{backend.name} attention is off by {result.max_error:.2g} standard deviations "
            f"of the logits (limit {result.limit:.2g})"
        )
    raise UnsupportedModelError(model=name, reason="self-test failed: " + "; ".join(reasons))
