"""Rule out the tokens that a row's grammar does not allow; the first change of its logits."""

import math
from collections.abc import Sequence

import numpy as np
import torch


def apply_masks(logits: torch.Tensor, masks: Sequence[bytes | None]) -> None:
    """Set what *masks* do not allow to -inf, in place.

    Args:
        logits: ``(num_rows, vocab_size)``.
        masks: One for each row, as `failsoft.engine.structured.grammar` defines it; None allows
            everything.
    """
    rows = [index for index, mask in enumerate(masks) if mask is not None]
    if not rows:
        return
    packed = np.frombuffer(b"".join(mask for mask in masks if mask is not None), dtype=np.uint8)
    # numpy unpacks bits ten times as fast as torch can on a CPU.
    bits = np.unpackbits(packed, bitorder="little").reshape(len(rows), -1)
    banned = torch.from_numpy(bits[:, : logits.shape[1]] == 0).to(logits.device)
    if len(rows) == len(masks):
        logits.masked_fill_(banned, -math.inf)
    else:
        logits[rows] = logits[rows].masked_fill_(banned, -math.inf)
