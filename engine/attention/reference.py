"""Attention in plain torch, for any device and every rule: windows, softcap, sinks.

Single-token rows go through two batched matrix products for each bucket of similar
context; query heads that share a KV head form one small matrix, so no KV head is
ever repeated. (torch's fused kernel with grouped heads cost 8 times as much on CPU
for such rows.) Rows of several tokens go through the fused kernel, one by one.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention

from failsoft.engine.attention.inputs import AttentionInputs, DecodeBucket, PromptRow
from failsoft.engine.attention.kv_pool import KVPool
from failsoft.engine.attention.site import AttentionSite


class ReferenceBackend:
    """Paged attention by gather; needs no kernel of its own."""

    name = "reference"

    def attend(
        self,
        site: AttentionSite,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        pool: KVPool,
        inputs: AttentionInputs,
        sinks: torch.Tensor | None,
    ) -> torch.Tensor:
        """Attend every packed token to its own sequence's past; KV is stored already.

        Args:
            site: The rules of this call.
            query: ``(num_query_heads, num_tokens, key_dim)``.
            key: ``(num_kv_heads, num_tokens, key_dim)`` of this step's tokens.
            value: ``(num_kv_heads, num_tokens, value_dim)`` of this step's tokens.
            pool: Where the past is.
            inputs: This step's rows.
            sinks: ``(num_query_heads,)`` logits of the attention sinks, if any.

        Returns:
            ``(num_tokens, num_query_heads, value_dim)``.
        """
        out = query.new_empty((query.shape[1], site.num_query_heads, site.value_dim))
        for bucket in inputs.decode_buckets(site.window):
            out[bucket.pack_index] = _decode(site, query, bucket, pool, sinks)
        for row in inputs.prompt_rows(site.window):
            span = row.span
            packed = slice(span.pack_start, span.pack_start + span.num_tokens)
            if row.visible is None:
                keys, values = key[:, packed], value[:, packed]
            else:
                keys, values = pool.gather(site.index, row.blocks)
                num_keys = row.visible.shape[1]
                keys = keys[:, 0, :num_keys].to(query.dtype)
                values = values[:, 0, :num_keys].to(query.dtype)
            attended = _prompt(site, query[:, packed], keys, values, row, sinks)
            out[packed] = attended.transpose(0, 1)
        return out


def _decode(
    site: AttentionSite,
    query: torch.Tensor,
    bucket: DecodeBucket,
    pool: KVPool,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Return ``(num_rows, num_query_heads, value_dim)`` of a bucket's rows."""
    num_rows = bucket.pack_index.shape[0]
    keys, values = pool.gather(site.index, bucket.blocks)
    keys, values = keys.flatten(0, 1).to(query.dtype), values.flatten(0, 1).to(query.dtype)
    rows = query.index_select(1, bucket.pack_index)
    rows = rows.view(site.num_kv_heads, site.group, num_rows, site.key_dim).transpose(1, 2)
    rows = rows.reshape(site.num_kv_heads * num_rows, site.group, site.key_dim)
    scores = torch.bmm(rows * site.scaling, keys.transpose(1, 2))
    scores = scores.view(site.num_kv_heads, num_rows, site.group, -1)
    if site.softcap is not None:
        scores = torch.tanh(scores / site.softcap) * site.softcap
    if bucket.hidden is not None:
        scores = scores.masked_fill_(bucket.hidden, float("-inf"))
    weights = _softmax(site, scores, sinks, group_dim=2)
    attended = torch.bmm(weights.flatten(0, 1), values)
    attended = attended.view(site.num_kv_heads, num_rows, site.group, site.value_dim)
    return attended.permute(1, 0, 2, 3).reshape(num_rows, site.num_query_heads, site.value_dim)


def _prompt(
    site: AttentionSite,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    row: PromptRow,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Return ``(num_query_heads, num_tokens, value_dim)`` of one row of several tokens."""
    num_tokens, num_keys = query.shape[1], keys.shape[1]
    grouped = query.reshape(site.num_kv_heads, site.group, num_tokens, site.key_dim)
    shared_keys = keys[:, None].expand(-1, site.group, -1, -1)
    shared_values = values[:, None].expand(-1, site.group, -1, -1)
    if site.softcap is None and not site.has_sinks:
        attended = scaled_dot_product_attention(
            grouped,
            shared_keys,
            shared_values,
            attn_mask=row.visible,
            is_causal=row.visible is None,
            scale=site.scaling,
        )
        return attended.reshape(site.num_query_heads, num_tokens, site.value_dim)
    scores = torch.matmul(grouped * site.scaling, shared_keys.transpose(-1, -2))
    if site.softcap is not None:
        scores = torch.tanh(scores / site.softcap) * site.softcap
    visible = row.visible
    if visible is None:
        visible = torch.ones(num_tokens, num_keys, dtype=torch.bool, device=query.device).tril()
    scores = scores.masked_fill_(~visible, float("-inf"))
    weights = _softmax(site, scores, sinks, group_dim=1)
    attended = torch.matmul(weights, shared_values)
    return attended.reshape(site.num_query_heads, num_tokens, site.value_dim)


def _softmax(
    site: AttentionSite, scores: torch.Tensor, sinks: torch.Tensor | None, *, group_dim: int
) -> torch.Tensor:
    """Softmax in float32 over keys; a sink takes part in the sum and holds no value."""
    if not site.has_sinks or sinks is None:
        return torch.softmax(scores, dim=-1, dtype=torch.float32).to(scores.dtype)
    shape = [1] * (scores.dim() - 1)
    shape[0], shape[group_dim] = site.num_kv_heads, site.group
    column = sinks.view(*shape, 1).expand(*scores.shape[:-1], 1).to(scores.dtype)
    weights = torch.softmax(torch.cat((scores, column), dim=-1), dim=-1, dtype=torch.float32)
    return weights[..., :-1].to(scores.dtype)
