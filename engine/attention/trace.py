"""Learning a model's attention sites by running it once.

Two facts come from the run itself: the shapes and rules each attention call
receives, and the mask the model would have used for that call. The mask is the
authority on windows: some models (phimoe) build a windowed mask and never tell the
attention call. What the mask lets a query see is probed far beyond the traced
prompt, so a window of thousands needs no prompt of thousands.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from failsoft.engine.attention.site import AttentionSite
from failsoft.errors import UnsupportedModelError

_TRACE = "failsoft_trace"

MaskFunction = Callable[..., Any]


class _Trace:
    """What one traced forward saw."""

    def __init__(self, max_model_len: int) -> None:
        self.max_model_len = max_model_len
        self.sites: list[AttentionSite] = []
        self.masks: list[tuple[torch.Tensor, int | None]] = []
        """Masks the model built, kept alive so that identity stays meaningful."""
        self.refusal: str | None = None

    def refuse(self, reason: str) -> None:
        self.refusal = self.refusal or reason


class _Active(threading.local):
    trace: _Trace | None = None


_active = _Active()
"""The trace under way on this thread: two models may be loaded at once."""


def trace_sites(
    model: Any, *, name: str, max_model_len: int, token_ids: torch.Tensor
) -> tuple[AttentionSite, ...]:
    """Return the attention sites of *model*; its attention setting is left as it was.

    Args:
        model: A transformers causal language model.
        name: For the error.
        max_model_len: Longest sequence to serve; a rule that starts beyond it is no rule.
        token_ids: ``(1, num_tokens)`` a short prompt.

    Raises:
        UnsupportedModelError: It ignores the attention setting, or its attention
            needs what the engine does not have.
    """
    before = model.config._attn_implementation
    try:
        with _tracing(max_model_len) as trace:
            model.set_attn_implementation(_TRACE)
            if model.config._attn_implementation != _TRACE:
                raise UnsupportedModelError(
                    model=name, reason="its code does not let the attention function be chosen"
                )
            with torch.inference_mode():
                model(input_ids=token_ids, use_cache=False)
    except (ValueError, NotImplementedError, TypeError, AttributeError, KeyError) as exc:
        raise UnsupportedModelError(
            model=name, reason=f"tracing its attention failed: {exc}"
        ) from exc
    finally:
        model.set_attn_implementation(before)
    if trace.refusal is not None:
        raise UnsupportedModelError(model=name, reason=trace.refusal)
    if not trace.sites:
        raise UnsupportedModelError(
            model=name, reason="its code never calls the attention function that was set"
        )
    return tuple(trace.sites)


@contextmanager
def _tracing(max_model_len: int) -> Iterator[_Trace]:
    assert _active.trace is None, "a trace is under way already"
    _active.trace = _Trace(max_model_len)
    try:
        yield _active.trace
    finally:
        _active.trace = None


def _traced_mask(*, mask_function: MaskFunction, **kwargs: Any) -> torch.Tensor:
    """Build the mask the model asks for, and note which window it amounts to."""
    assert _active.trace is not None
    kwargs["allow_is_causal_skip"] = False
    local_size = kwargs.get("local_size")
    mask: torch.Tensor = sdpa_mask(mask_function=mask_function, **kwargs)
    _active.trace.masks.append((mask, _window_of(mask_function, local_size, _active.trace)))
    return mask


def _window_of(mask_function: MaskFunction, local_size: int | None, trace: _Trace) -> int | None:
    """Return the window that *mask_function* applies, None for plain causal.

    A mask that is neither is noted as a refusal.
    """
    far = trace.max_model_len - 1
    around = (0, 1, 2, 7, 64, local_size or 1024)
    queries = sorted({min(far, base * times) for base in around for times in (1, 2, 3)})
    for window in dict.fromkeys((None, local_size)):
        if all(_sees_as(mask_function, query, window) for query in queries):
            return window
    trace.refuse(f"it masks attention by a rule that is neither causal nor a window ({local_size})")
    return None


def _sees_as(mask_function: MaskFunction, query: int, window: int | None) -> bool:
    """Whether *mask_function* shows *query* exactly the keys that *window* would."""
    oldest = 0 if window is None else max(0, query - window + 1)
    keys = {0, oldest - 1, oldest, oldest + 1, query // 2, query - 1, query, query + 1}
    zero = torch.tensor(0)
    for key in keys:
        if key < 0:
            continue
        visible = bool(mask_function(zero, zero, torch.tensor(query), torch.tensor(key)))
        if visible != (oldest <= key <= query):
            return False
    return True


def _traced_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    is_causal: bool | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Note one attention call and return zeros of the right shape, which is all a trace needs."""
    trace = _active.trace
    assert trace is not None
    if position_bias is not None:
        trace.refuse("its attention adds a learnt position bias")
    if is_causal is False or not getattr(module, "is_causal", True):
        trace.refuse("its attention is not causal")
    known = [window for mask, window in trace.masks if mask is attention_mask]
    # A layer that built no mask of ours is taken at its word.
    window = known[0] if known else sliding_window
    trace.sites.append(
        AttentionSite(
            index=len(trace.sites),
            num_query_heads=query.shape[1],
            num_kv_heads=key.shape[1],
            key_dim=key.shape[3],
            value_dim=value.shape[3],
            scaling=query.shape[3] ** -0.5 if scaling is None else float(scaling),
            window=window,
            softcap=None if softcap is None else float(softcap),
            has_sinks=s_aux is not None,
        )
    )
    out = query.new_zeros(1, query.shape[2], query.shape[1], value.shape[3])
    return out, None


AttentionInterface.register(_TRACE, _traced_attention)
AttentionMaskInterface.register(_TRACE, _traced_mask)
