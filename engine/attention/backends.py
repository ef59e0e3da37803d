"""Which attention backends to try for a model, best first; the self-test decides."""

from collections.abc import Iterator

import torch

from failsoft.engine.attention.dispatch import Backend
from failsoft.engine.attention.reference import ReferenceBackend
from failsoft.engine.attention.site import AttentionSite
from failsoft.engine.attention.varlen import VarlenBackend, can_serve


def candidates(
    *, device: torch.device, dtype: torch.dtype, sites: tuple[AttentionSite, ...]
) -> Iterator[Backend]:
    """Yield backends that have every site's rules on *device*, fastest first."""
    if device.type == "cuda" and all(can_serve(site, dtype) for site in sites):
        from torch.nn.attention.varlen import varlen_attn

        yield VarlenBackend(varlen_attn)
    yield ReferenceBackend()
