"""What the installed torch is, read from its version file: importing it takes 2 s of a core.

A move of a pin is checked in a process of its own, beside an engine that answers callers.
"""

import runpy
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple


class TorchBuild(NamedTuple):
    """The installed build."""

    version: str
    """As ``torch.__version__``."""
    has_gpu: bool
    """Whether it was built for any GPU; whether there is one, only torch itself can say."""


@cache
def torch_build() -> TorchBuild:
    """Return the build that ``import torch`` would load.

    Raises:
        ModuleNotFoundError: There is none.
    """
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    values = runpy.run_path(str(Path(spec.origin).with_name("version.py")))
    has_gpu = any(values.get(kind) is not None for kind in ("cuda", "hip", "xpu"))
    return TorchBuild(version=str(values["__version__"]), has_gpu=has_gpu)


def auto_device() -> str:
    """Return what the device ``auto`` means here; imports torch only where it may be a GPU."""
    if not torch_build().has_gpu:
        return "cpu"
    from failsoft.engine.device import pick_device

    return pick_device("auto")
