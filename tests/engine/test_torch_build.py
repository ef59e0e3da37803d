"""The build of torch, told without importing it."""

import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import torch

from failsoft.engine import torch_build
from failsoft.engine.device import pick_device


def test_it_tells_what_torch_itself_tells() -> None:
    """Records of dtypes are kept under the version, a check of a version by the device."""
    assert torch_build.torch_build().version == torch.__version__
    assert torch_build.auto_device() == pick_device("auto")


@pytest.mark.parametrize(("kind", "has_gpu"), [("cuda", True), ("hip", True), ("debug", False)])
def test_a_build_for_gpus_is_told(
    kind: str, has_gpu: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then only torch can say whether there is one."""
    (tmp_path / "version.py").write_text(f'__version__ = "9.0"\ncuda = hip = None\n{kind} = "12"\n')
    spec = ModuleSpec("torch", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(torch_build, "find_spec", lambda name: spec)
    torch_build.torch_build.cache_clear()
    try:
        assert torch_build.torch_build() == ("9.0", has_gpu)
    finally:
        torch_build.torch_build.cache_clear()


def test_it_is_told_without_torch() -> None:
    """Importing it takes 2 s, which a move of a pin waits for."""
    code = "import sys; from failsoft.engine.torch_build import torch_build as b; b()"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'torch' not in sys.modules"], check=True)
