"""Where a model runs: a CUDA device where there is one, else the CPU."""

import torch

from failsoft.errors import ConfigError


def pick_device(wanted: str) -> str:
    """Return ``cpu`` or ``cuda`` for ``auto``, ``cpu`` or ``cuda``.

    Raises:
        ConfigError: ``cuda`` is wanted and this torch finds none.
    """
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            key="device",
            value=wanted,
            allowed="cpu or auto here: this torch build finds no CUDA device",
        )
    if wanted != "auto":
        return wanted
    return "cuda" if torch.cuda.is_available() else "cpu"


def has_bfloat16(device: str | torch.device) -> bool:
    """Return whether *device* multiplies bfloat16 matrices in hardware."""
    kind = torch.device(device).type
    if kind == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return kind == "cpu" and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
