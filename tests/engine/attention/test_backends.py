"""Paged attention against attention written out, for every rule and every backend."""

import random

import pytest
import torch

from failsoft.engine.attention import inputs as inputs_module
from failsoft.engine.attention.dispatch import Backend
from failsoft.engine.attention.kv_pool import KVPool
from failsoft.engine.attention.reference import ReferenceBackend
from failsoft.engine.attention.site import AttentionSite
from failsoft.engine.attention.varlen import VarlenBackend, can_serve
from failsoft.engine.batch import PackRow, pack

BLOCK = 4
CPU = torch.device("cpu")


def make_site(**rules: object) -> AttentionSite:
    shape = {"num_query_heads": 6, "num_kv_heads": 2, "key_dim": 8, "value_dim": 8}
    rules = {"window": None, "softcap": None, "has_sinks": False, **rules}
    return AttentionSite(index=0, scaling=0.3, **{**shape, **rules})  # type: ignore[arg-type]


def plain_varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float,
    window_size: tuple[int, int],
    enable_gqa: bool,
) -> torch.Tensor:
    """Stand in for the CUDA kernel: causal, aligned at the lower right, windowed to the left."""
    assert enable_gqa == (query.shape[1] != key.shape[1])
    out = torch.empty(query.shape[0], query.shape[1], value.shape[2])
    for row in range(len(cu_seq_q) - 1):
        q = query[cu_seq_q[row] : cu_seq_q[row + 1]]
        k, v = (t[cu_seq_k[row] : cu_seq_k[row + 1]] for t in (key, value))
        assert q.shape[0] <= max_q
        assert k.shape[0] <= max_k
        group = query.shape[1] // key.shape[1]
        scores = torch.einsum("qhd,khd->hqk", q, k.repeat_interleave(group, 1)) * scale
        at = torch.arange(len(q))[:, None] + len(k) - len(q)
        keys = torch.arange(len(k))[None]
        hidden = keys > at
        if window_size[0] >= 0:
            hidden |= keys < at - window_size[0]
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        rows = torch.einsum("hqk,khd->qhd", weights, v.repeat_interleave(group, 1))
        out[cu_seq_q[row] : cu_seq_q[row + 1]] = rows
    return out


def written_out(
    site: AttentionSite,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attend a whole sequence, head by head and query by query; ``(tokens, heads, dim)``."""
    num_tokens = query.shape[1]
    out = torch.empty(num_tokens, site.num_query_heads, site.value_dim)
    for head in range(site.num_query_heads):
        kv = head // site.group
        for at in range(num_tokens):
            first = 0 if site.window is None else max(0, at - site.window + 1)
            scores = key[kv, first : at + 1] @ query[head, at] * site.scaling
            if site.softcap is not None:
                scores = site.softcap * torch.tanh(scores / site.softcap)
            if sinks is not None:
                scores = torch.cat((scores, sinks[head : head + 1]))
            weights = scores.softmax(0)[: at + 1 - first]
            out[at, head] = weights @ value[kv, first : at + 1]
    return out


RULES: dict[str, dict[str, object]] = {
    "full": {},
    "window of 5": {"window": 5},
    "window of one block": {"window": BLOCK},
    "window of 1": {"window": 1},
    "softcap": {"softcap": 2.0},
    "sinks": {"has_sinks": True},
    "window and sinks": {"window": 5, "has_sinks": True},
    "narrow values": {"value_dim": 4},
    "one KV head each": {"num_kv_heads": 6},
}


BACKENDS: list[Backend] = [ReferenceBackend(), VarlenBackend(plain_varlen)]

CASES = [
    pytest.param(rules, backend, id=f"{backend.name}, {name}")
    for name, rules in RULES.items()
    for backend in BACKENDS
    # The kernel has no softcap and no sinks, and can_serve says so.
    if backend.name == "reference" or not {"softcap", "has_sinks"} & set(rules)
]


@pytest.mark.parametrize(("rules", "backend"), CASES)
def test_packed_chunks_equal_attention_written_out(
    rules: dict[str, object], backend: Backend
) -> None:
    """Sequences of 1 to 23 tokens, cut anywhere, blocks scattered, decodes among chunks."""
    site = make_site(**rules)
    rng = random.Random(2)
    torch.manual_seed(0)
    lengths = [1, 4, 5, 9, 16, 23]
    data = [
        (
            torch.randn(site.num_query_heads, length, site.key_dim),
            torch.randn(site.num_kv_heads, length, site.key_dim),
            torch.randn(site.num_kv_heads, length, site.value_dim),
        )
        for length in lengths
    ]
    sinks = torch.randn(site.num_query_heads) if site.has_sinks else None
    order = rng.sample(range(40), 40)
    tables = [tuple(order.pop() for _ in range(-(-length // BLOCK))) for length in lengths]
    pool = KVPool(sites=(site,), num_blocks=40, block_size=BLOCK, dtype=torch.float32, device=CPU)
    done = [0] * len(lengths)
    outputs = [torch.empty(length, site.num_query_heads, site.value_dim) for length in lengths]

    while any(at < length for at, length in zip(done, lengths, strict=True)):
        picked = [n for n in rng.sample(range(len(lengths)), 6) if done[n] < lengths[n]]
        pieces = [min(lengths[n] - done[n], rng.choice([1, 1, 3, 6])) for n in picked]
        cuts = [(n, done[n], size) for n, size in zip(picked, pieces, strict=True)]
        rows = [
            PackRow(token_ids=[0] * size, start=start, blocks=tables[n], num_logits=0)
            for n, start, size in cuts
        ]
        inputs = pack(rows, block_size=BLOCK, device=CPU).attention
        q, k, v = (
            torch.cat([data[n][part][:, start : start + size] for n, start, size in cuts], dim=1)
            for part in range(3)
        )
        pool.write(0, inputs.slots, k, v)
        out = backend.attend(site, q, k, v, pool=pool, inputs=inputs, sinks=sinks)
        for n, piece in zip(picked, torch.split(out, pieces), strict=True):
            outputs[n][done[n] : done[n] + len(piece)] = piece
            done[n] += len(piece)

    for n, (query, key, value) in enumerate(data):
        torch.testing.assert_close(
            outputs[n], written_out(site, query, key, value, sinks), rtol=1e-4, atol=1e-5
        )


def test_rubbish_behind_the_end_of_a_context_is_never_seen() -> None:
    """A block's unwritten slots may hold anything finite; a padded table may repeat."""
    site = make_site()
    pool = KVPool(sites=(site,), num_blocks=4, block_size=BLOCK, dtype=torch.float32, device=CPU)
    for tensor in (*pool.keys, *pool.values):
        tensor.fill_(1e4)
    torch.manual_seed(0)
    q, k, v = torch.randn(6, 1, 8), torch.randn(2, 1, 8), torch.randn(2, 1, 8)
    rows = [PackRow(token_ids=[0], start=0, blocks=(2,), num_logits=0)]
    inputs = pack(rows, block_size=BLOCK, device=CPU).attention
    pool.write(0, inputs.slots, k, v)

    out = ReferenceBackend().attend(site, q, k, v, pool=pool, inputs=inputs, sinks=None)

    torch.testing.assert_close(out, written_out(site, q, k, v, None))


def test_scrubbing_removes_not_a_number() -> None:
    """Zero times NaN is NaN, so a failed row's blocks are zeroed before their next use."""
    site = make_site()
    pool = KVPool(sites=(site,), num_blocks=2, block_size=BLOCK, dtype=torch.float32, device=CPU)
    pool.keys[0][:, 1] = float("nan")
    pool.values[0][:, 1] = float("nan")

    pool.scrub([1])

    assert bool(pool.keys[0].isfinite().all())
    assert bool(pool.values[0].isfinite().all())


def test_a_window_needs_only_its_own_blocks() -> None:
    """Blocks wholly left of the window are not gathered, for decodes and for chunks."""
    rows = [
        PackRow(token_ids=[0], start=39, blocks=tuple(range(10)), num_logits=1),
        PackRow(token_ids=[0] * 3, start=36, blocks=tuple(range(10)), num_logits=1),
    ]
    inputs = pack(rows, block_size=BLOCK, device=CPU).attention

    assert inputs.decode_buckets(6)[0].blocks.tolist() == [[8, 9]]
    assert inputs.prompt_rows(6)[0].blocks.tolist() == [[7, 8, 9]]
    assert inputs.decode_buckets(None)[0].blocks.tolist() == [list(range(10))]


def test_decodes_of_very_different_context_are_not_padded_to_one_length() -> None:
    """One long conversation does not make every short one pay for its length."""
    lengths = [64, 60, 58, 8, 7, 1]
    rows = [
        PackRow(token_ids=[0], start=n - 1, blocks=tuple(range(16)), num_logits=1) for n in lengths
    ]

    buckets = pack(rows, block_size=BLOCK, device=CPU).attention.decode_buckets(None)

    assert [tuple(bucket.blocks.shape) for bucket in buckets] == [(3, 16), (2, 2), (1, 1)]


def test_many_decodes_are_gathered_in_parts_that_a_cache_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row too long for that has a part to itself; every row is in one part."""
    monkeypatch.setattr(inputs_module, "BUCKET_POSITIONS", 32)
    lengths = [60, 16, 16, 13, 16, 15]
    rows = [
        PackRow(token_ids=[0], start=n - 1, blocks=tuple(range(16)), num_logits=1) for n in lengths
    ]

    buckets = pack(rows, block_size=BLOCK, device=CPU).attention.decode_buckets(None)

    assert [tuple(bucket.blocks.shape) for bucket in buckets] == [(1, 15), (2, 4), (2, 4), (1, 4)]
    assert sorted(at for bucket in buckets for at in bucket.pack_index.tolist()) == [*range(6)]


@pytest.mark.parametrize(
    ("rules", "dtype", "served"),
    [
        ({}, torch.bfloat16, True),
        ({}, torch.float32, False),
        ({"softcap": 1.0}, torch.bfloat16, False),
        ({"has_sinks": True}, torch.bfloat16, False),
        ({"value_dim": 4}, torch.bfloat16, False),
        ({"key_dim": 288, "value_dim": 288}, torch.bfloat16, False),
        ({"window": 5}, torch.bfloat16, True),
    ],
)
def test_the_kernel_is_offered_only_what_it_can_do(
    rules: dict[str, object], dtype: torch.dtype, served: bool
) -> None:
    """FlashAttention 2's limits, as torch ships it."""
    assert can_serve(make_site(**rules), dtype) is served
