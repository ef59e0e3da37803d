"""What the files of a model must be: which are taken, which are refused, which are the tokenizer's.

Knows nothing of where files come from, of the store's folders or of torch.
"""

import json
from fnmatch import fnmatch
from pathlib import Path

from failsoft.config.sources import PICKLE_REASON, PICKLE_SUFFIXES
from failsoft.engine.models.gguf_header import GgufHeader, read_gguf_header
from failsoft.errors import UnsupportedModelError

GGUF_NAME = "model.gguf"
"""A GGUF file's name inside the store, whatever it was called where it came from."""

TOKENIZER_FILES = frozenset(
    {
        "added_tokens.json",
        "chat_template.jinja",
        "chat_template.json",
        "merges.txt",
        "sentencepiece.bpe.model",
        "special_tokens_map.json",
        "spiece.model",
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "vocab.json",
        "vocab.txt",
    }
)

FOLDER_PATTERNS = (
    "*.safetensors",
    "model.safetensors.index.json",
    "config.json",
    "generation_config.json",
    *sorted(TOKENIZER_FILES),
)
"""What is taken from a folder or a repository; the rest is documents or other formats."""

SKIPPED_PATTERNS = ("*/*", "consolidated*.safetensors")
"""Other copies of the same weights that repositories also hold."""


def is_model_file(path: str) -> bool:
    """Whether a file at *path* inside a folder is part of the model."""
    wanted = any(fnmatch(path, pattern) for pattern in FOLDER_PATTERNS)
    return wanted and not any(fnmatch(path, pattern) for pattern in SKIPPED_PATTERNS)


def read_json(path: Path) -> dict[str, object]:
    """Return the JSON object in the file at *path*; an empty one when there is no file.

    Raises:
        UnsupportedModelError: The file is there and holds no JSON object.
    """
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as exc:
        raise UnsupportedModelError(
            model=str(path.parent), reason=f"{path.name} is no JSON ({exc})"
        ) from exc
    if not isinstance(value, dict):
        raise UnsupportedModelError(model=str(path.parent), reason=f"{path.name} is no JSON object")
    return value


def check_files(folder: Path, *, model: str) -> GgufHeader | None:
    """Check that *folder* holds one servable model; return its header if it is GGUF.

    Args:
        folder: What would be stored: a lone GGUF file, or safetensors and their JSON.
        model: What to call it in an error.

    Raises:
        UnsupportedModelError: Files are missing, or loading them would run foreign code.
    """
    if (folder / GGUF_NAME).exists():
        return read_gguf_header(folder / GGUF_NAME)
    _check_weights(folder, model=model)
    refuse_remote_code(folder, model=model)
    if not any((folder / name).exists() for name in TOKENIZER_FILES):
        raise UnsupportedModelError(
            model=model, reason="it has no tokenizer; put tokenizer.json beside config.json"
        )
    return None


def _check_weights(folder: Path, *, model: str) -> None:
    if not (folder / "config.json").exists():
        raise UnsupportedModelError(
            model=model, reason="it has no config.json, which says what the weights are"
        )
    if not any(folder.glob("*.safetensors")):
        raise UnsupportedModelError(model=model, reason=f"it has no *.safetensors; {PICKLE_REASON}")
    weight_map = read_json(folder / "model.safetensors.index.json").get("weight_map", {})
    names = set(weight_map.values()) if isinstance(weight_map, dict) else set()
    missing = sorted(name for name in names if not (folder / str(name)).exists())
    if missing:
        raise UnsupportedModelError(model=model, reason=f"weights are missing: {missing[0]}")


def refuse_remote_code(folder: Path, *, model: str) -> None:
    """Raise when loading the model would run code that came with it.

    Raises:
        UnsupportedModelError: config.json or tokenizer_config.json asks for it.
    """
    for name in ("config.json", "tokenizer_config.json"):
        if read_json(folder / name).get("auto_map"):
            raise UnsupportedModelError(
                model=model,
                reason=f"{name} has an auto_map: loading it would run the repository's own code "
                "(trust_remote_code), which is never done; take a model whose architecture "
                "transformers itself knows",
            )


def has_pickles(names: list[str]) -> bool:
    """Whether some of *names* are pickled weights."""
    return any(Path(name).suffix.lower() in PICKLE_SUFFIXES for name in names)
