"""The process that turns a GGUF file into safetensors, or casts safetensors to another dtype.

``python -m failsoft.engine.models.convert_child dequantise GGUF FOLDER float32`` or
``… cast FOLDER FOLDER DTYPE``. Run by ``convert``; what it writes is published there.
"""

import json
import os
import shutil
import sys
import threading
from pathlib import Path

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from failsoft.engine.models.convert import REFUSED
from failsoft.engine.models.gguf_header import read_gguf_header, read_gguf_tokens
from failsoft.engine.models.gguf_quick import quick_gguf_reader
from failsoft.engine.models.gguf_repair import (
    check_header,
    check_tokens,
    repair_config,
    repair_tokenizer,
)
from failsoft.errors import UnsupportedModelError


def dequantise(source: Path, folder: Path) -> None:
    """Write the GGUF file *source* to *folder* as float32 safetensors with its tokenizer.

    Raises:
        UnsupportedModelError: The result would not be the model that the file holds.
    """
    header = read_gguf_header(source)
    check_header(header, model=source.name)
    with quick_gguf_reader():
        tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
        check_tokens(tokenizer, read_gguf_tokens(source), model=source.name)
        repair_tokenizer(tokenizer, header, model=source.name)
        tokenizer.save_pretrained(folder)
        model, info = AutoModelForCausalLM.from_pretrained(
            source.parent, gguf_file=source.name, dtype=torch.float32, output_loading_info=True
        )
    lost = {kind: sorted(map(str, keys)) for kind, keys in info.items() if keys}
    if lost:
        raise UnsupportedModelError(
            model=source.name, reason=f"transformers loads its weights incompletely: {lost}"
        )
    repair_config(model.config, model.generation_config, header)
    _save(model, folder)


def _save(model: transformers.PreTrainedModel, folder: Path) -> None:
    # transformers 5.24 keeps calling a dequantised model quantised, and refuses to save one.
    for name in ("quantization_config", "_pre_quantization_dtype"):
        if hasattr(model.config, name):
            delattr(model.config, name)
    model.hf_quantizer = None
    model.is_quantized = False
    model.config.architectures = [type(model).__name__]
    model.config.name_or_path = ""
    model.save_pretrained(folder)


def cast(source: Path, folder: Path, dtype: str) -> None:
    """Write the safetensors of *source* to *folder* in *dtype*, all else as it is."""
    for path in sorted(source.iterdir()):
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as weights:
                tensors = {
                    name: _cast_one(weights.get_tensor(name), getattr(torch, dtype))
                    for name in weights.keys()  # noqa: SIM118 - not a mapping
                }
            save_file(tensors, folder / path.name, metadata={"format": "pt"})
        elif path.name == "config.json":
            config = json.loads(path.read_bytes())
            config["dtype"] = dtype
            (folder / path.name).write_text(json.dumps(config, indent=2, sort_keys=True))
        elif path.name != "conversion.json":
            shutil.copyfile(path, folder / path.name)


def _cast_one(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _end_with_parent() -> None:
    # Not sys.stdin: a thread inside its buffer aborts the interpreter's shutdown.
    while os.read(0, 1):
        pass
    os._exit(1)  # nobody waits for the result any more


def main(job: str, source: str, folder: str, dtype: str) -> int:
    """Do one job; return the process' exit code."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        if job == "dequantise":
            dequantise(Path(source), Path(folder))
        else:
            cast(Path(source), Path(folder), dtype)
    except UnsupportedModelError as exc:
        sys.stdout.write(json.dumps({"reason": exc.reason}))
        sys.stdout.flush()
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
