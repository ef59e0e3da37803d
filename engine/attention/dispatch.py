"""The attention function that transformers calls, and the step it belongs to.

The step travels through a variable of its thread, not through model arguments:
some models (stablelm, nemotron) do not hand keyword arguments down to their
attention. Each engine has a thread of its own, so engines of one process do not meet;
entering it twice on one thread is an error.

No mask function is registered under our name, so transformers builds no mask.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import torch
from transformers import AttentionInterface

from failsoft.engine.attention.inputs import AttentionInputs
from failsoft.engine.attention.kv_pool import KVPool
from failsoft.engine.attention.site import AttentionSite

IMPLEMENTATION = "failsoft"
"""Name under which transformers finds the function."""


class Backend(Protocol):
    """Attends one site's packed queries; see ``reference`` for shapes."""

    name: str

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
        """Return ``(num_tokens, num_query_heads, value_dim)``."""


class Step(NamedTuple):
    """What the attention calls of one forward share."""

    sites: tuple[AttentionSite, ...]
    pool: KVPool
    inputs: AttentionInputs
    backend: Backend


class _Current(threading.local):
    step: Step | None = None


_current = _Current()


@contextmanager
def step(value: Step) -> Iterator[None]:
    """Make *value* what this thread's attention calls see until the block ends."""
    assert _current.step is None, "a forward is under way already"
    _current.step = value
    try:
        yield
    finally:
        _current.step = None


def paged_attention(
    module: torch.nn.Module,  # noqa: ARG001 transformers passes it
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,  # noqa: ARG001 always None under our name
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Store this call's keys and values, then attend; the signature is transformers'.

    Scaling, window and softcap come from the traced site, not from the arguments.

    Args:
        module: The attention layer; unused.
        query: ``(1, num_query_heads, num_tokens, key_dim)``, rotary applied.
        key: ``(1, num_kv_heads, num_tokens, key_dim)``.
        value: ``(1, num_kv_heads, num_tokens, value_dim)``.
        attention_mask: Always None under our name.
        s_aux: ``(num_query_heads,)`` sink logits of models that have them.

    Returns:
        ``(1, num_tokens, num_query_heads, value_dim)`` and no weights.
    """
    assert _current.step is not None, "attention was called outside a step"
    sites, pool, inputs, backend = _current.step
    site = sites[inputs.next_site]
    inputs.next_site += 1
    # Tokens behind the last row are filler, which neither stores nor sees anything.
    num_tokens, num_filler = inputs.slots.shape[0], query.shape[2] - inputs.slots.shape[0]
    query, key, value = (tensor[:, :, :num_tokens] for tensor in (query, key, value))
    pool.write(site.index, inputs.slots, key[0], value[0])
    out = backend.attend(site, query[0], key[0], value[0], pool=pool, inputs=inputs, sinks=s_aux)
    if num_filler:
        out = torch.nn.functional.pad(out, (0, 0, 0, 0, 0, num_filler))
    return out[None], None


AttentionInterface.register(IMPLEMENTATION, paged_attention)
