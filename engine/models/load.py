"""Loads a version's weights and tokenizer from the store, and checks that nothing is missing.

Loads no code that came with a model. Weights come in ``version.weights_dtype``, in eval
mode and without gradients. Imports torch and transformers.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from failsoft.engine.models.convert import conversion_files, ensure_converted
from failsoft.engine.models.model_files import refuse_remote_code
from failsoft.engine.models.store import ModelStore, check_bytes
from failsoft.engine.models.version import Version
from failsoft.errors import ModelFileError, ModelSourceError, UnsupportedModelError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A version in memory, with what the engine must know of it."""

    version: Version
    model: transformers.PreTrainedModel
    """Eval mode, no gradients, weights in ``version.weights_dtype``."""
    tokenizer: transformers.PreTrainedTokenizerBase
    chat_template: str | None
    """Jinja text; None when the version cannot chat."""
    stop_strings: tuple[str, ...]
    eos_token_ids: frozenset[int]
    """Every id that ends a sequence: generation config, config and tokenizer together."""
    max_model_len: int
    """Prompt plus output tokens of one request at most."""
    vocab_size: int
    """Width of the logits; may be more than the tokenizer has tokens."""
    generation_defaults: dict[str, float]
    """Sampling values a request gets when it gives none."""


def load_model(
    version: Version, *, store: ModelStore, device: str | torch.device = "cpu"
) -> LoadedModel:
    """Load *version*, converting its model first if that was never done.

    Args:
        version: What to load; its model must be in *store*.
        store: Where its files are.
        device: Where the weights go.

    Raises:
        ModelSourceError: The store does not have its model.
        ModelFileError: A file that would be loaded is missing, or its bytes are not those
            that were stored or converted; each is hashed, at every load.
        UnsupportedModelError: It cannot be loaded right.
    """
    folder = _checked_folder(version, store)
    refuse_remote_code(folder, model=version.name)
    with _quiet_transformers():
        tokenizer = _load_tokenizer(folder, version)
        model = _load_weights(folder, version, device)
    return LoadedModel(
        version=version,
        model=model,
        tokenizer=tokenizer,
        chat_template=version.chat_template,
        stop_strings=version.stop_strings,
        eos_token_ids=_eos_token_ids(model, tokenizer),
        max_model_len=_max_model_len(model.config, version),
        vocab_size=_vocab_size(model),
        generation_defaults=dict(version.generation_defaults),
    )


def _checked_folder(version: Version, store: ModelStore) -> Path:
    """Return the folder to load from, once every byte in it is known to be the right one."""
    digest = version.model_digest
    try:
        stored = store.model(digest)
        if stored is None:
            raise ModelSourceError(
                f"model {digest[:12]} of version {version.name} is not in {store.root}; "
                f"fetch it with `failsoft models add {version.name}`",
                source=version.name,
            )
        stored.check_manifest()
        folder = ensure_converted(stored, dtype=version.weights_dtype, store=store)
        check_bytes(folder, conversion_files(folder) if stored.is_gguf else stored.files)
    except ModelFileError as exc:
        raise exc.named(version.name) from exc
    return folder


def _load_tokenizer(folder: Path, version: Version) -> transformers.PreTrainedTokenizerBase:
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, ImportError, KeyError) as exc:
        raise UnsupportedModelError(
            model=version.name, reason=f"its tokenizer does not load ({exc})"
        ) from exc
    tokenizer.chat_template = version.chat_template
    return tokenizer


def _load_weights(
    folder: Path, version: Version, device: str | torch.device
) -> transformers.PreTrainedModel:
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        model, info = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=getattr(torch, version.weights_dtype),
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, ImportError, KeyError, RuntimeError) as exc:
        raise UnsupportedModelError(
            model=version.name, reason=f"transformers does not load it ({exc})"
        ) from exc
    _refuse_incomplete(info, version)
    model = model.to(device).eval().requires_grad_(requires_grad=False)
    _check_dtype(model, version)
    return model


def _refuse_incomplete(info: dict[str, Any], version: Version) -> None:
    # transformers fills a missing weight with random numbers and only logs it.
    for kind in ("missing_keys", "mismatched_keys", "error_msgs", "conversion_errors"):
        if lost := sorted(map(str, info.get(kind) or ())):
            raise UnsupportedModelError(
                model=version.name,
                reason=f"{len(lost)} of its weights do not fit ({kind}), the first is {lost[0]}",
            )
    if unused := sorted(map(str, info.get("unexpected_keys") or ())):
        logger.warning("%s: %d stored weights unused: %s", version.name, len(unused), unused[:3])


def _check_dtype(model: transformers.PreTrainedModel, version: Version) -> None:
    wanted = getattr(torch, version.weights_dtype)
    for name, weight in model.named_parameters():
        if weight.is_floating_point() and weight.dtype != wanted:
            raise UnsupportedModelError(
                model=version.name,
                reason=f"{name} loads as {weight.dtype}, not {wanted}; choose another dtype",
            )


def _eos_token_ids(
    model: transformers.PreTrainedModel, tokenizer: transformers.PreTrainedTokenizerBase
) -> frozenset[int]:
    # Each list alone may miss an end token: some chat models name theirs in one place only.
    generation_config = getattr(model, "generation_config", None)
    found: set[int] = set()
    for holder in (generation_config, _text_config(model.config), tokenizer):
        ids = getattr(holder, "eos_token_id", None)
        found.update(ids if isinstance(ids, list | tuple) else [] if ids is None else [ids])
    return frozenset(int(token) for token in found)


def _max_model_len(config: Any, version: Version) -> int:
    limit = getattr(_text_config(config), "max_position_embeddings", None)
    asked = dict(version.engine_options).get("max_model_len")
    if not isinstance(limit, int) or limit < 1:
        if asked is None:
            raise UnsupportedModelError(
                model=version.name,
                reason="its config names no max_position_embeddings; set max_model_len under "
                f"[versions.{version.name}.engine]",
            )
        return int(asked)
    return limit if asked is None else min(limit, int(asked))


def _vocab_size(model: transformers.PreTrainedModel) -> int:
    head = model.get_output_embeddings()
    if head is not None and hasattr(head, "weight"):
        return int(head.weight.shape[0])
    return int(_text_config(model.config).vocab_size)


def _text_config(config: Any) -> Any:
    return config.get_text_config(decoder=True)


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Keep progress bars and advice off stderr; what matters is checked and raised here."""
    verbosity = transformers_logging.get_verbosity()
    had_bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if had_bars:
            transformers_logging.enable_progress_bar()
