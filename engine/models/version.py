"""A version: the immutable description of what answers, and its digest.

Knows nothing of torch, of the store or of where files lie. Digests are sha256 in
lower-case hex. What a digest covers never changes within one ``SCHEMA`` number:
pins written years ago must still name the same answers. Prices are no part of
it (they change while answers do not), nor is the name, nor where the files were
fetched from.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from failsoft.errors import ConfigError
from failsoft.records import TokenPrice

SCHEMA = 1
"""Raised when the manifest's meaning changes; old digests then keep their old number."""

DTYPES = ("float32", "bfloat16", "int8")
"""What a version may compute in; ``auto`` is resolved before a version exists.

``int8`` means for ever what `failsoft.engine.int8` says: other scales are another name."""

OPTIONS_IN_DIGEST = ("max_model_len",)
"""Engine options that change what is answered; the others change only how fast."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


class FileDigest(NamedTuple):
    """One model file: its name inside the model, and the sha256 of its bytes in hex."""

    path: str
    sha256: str


def canonical_json(value: object) -> bytes:
    """Return *value* as the one byte string that equal values share.

    Sorted keys, no spaces, UTF-8 without escapes, no NaN or infinity.
    """
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8")


def weights_dtype(dtype: str) -> str:
    """Return what the weights of a version of *dtype* are stored and loaded in.

    8-bit weights are made at load, from those in bfloat16.
    """
    return "bfloat16" if dtype == "int8" else dtype


def files_digest(files: tuple[FileDigest, ...]) -> str:
    """Return the sha256 that names a set of files.

    A lone file is named by its own sha256, so that anybody can check it with
    ``sha256sum``; several by that of the canonical JSON of path to sha256.
    """
    if len(files) == 1:
        return files[0].sha256
    return hashlib.sha256(canonical_json({f.path: f.sha256 for f in files})).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One model with everything that shapes its answers; equal digests answer alike.

    Raises:
        ConfigError: *dtype* is not resolved, or a digest is not sha256 in hex.
    """

    name: str
    """What people call it; no part of the digest."""
    files: tuple[FileDigest, ...]
    """Weights, config and, in a GGUF file, the tokenizer; sorted by path."""
    tokenizer_digest: str
    """Digest of the files the tokenizer is read from; a GGUF file's own for GGUF."""
    model_digest: str
    """What the store keeps the model under: the digest of all its files."""
    chat_template: str | None
    """Jinja text; None when the model cannot chat."""
    stop_strings: tuple[str, ...] = ()
    """Strings that end a chat answer, given by the template."""
    generation_defaults: tuple[tuple[str, float], ...] = ()
    """Sampling values a request gets when it gives none, sorted by name."""
    system_prompt: str | None = None
    dtype: str
    """One of ``DTYPES``."""
    engine_options: tuple[tuple[str, int | float | bool], ...] = ()
    """What the version asks of the engine, sorted by name; see ``OPTIONS_IN_DIGEST``."""
    price: TokenPrice | None = None
    """What its tokens cost; no part of the digest."""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ConfigError(
                key=f"versions.{self.name}.dtype",
                value=self.dtype,
                allowed=f"one of {', '.join(DTYPES)} once resolved",
            )
        digests = [(f.path, f.sha256) for f in self.files]
        digests += [("tokenizer", self.tokenizer_digest), ("model", self.model_digest)]
        for what, digest in digests:
            if not _SHA256.fullmatch(digest):
                raise ConfigError(
                    key=f"versions.{self.name}.{what}", value=digest, allowed="sha256 in hex"
                )

    @property
    def weights_dtype(self) -> str:
        """What its weights are loaded in."""
        return weights_dtype(self.dtype)

    @property
    def digest(self) -> str:
        """sha256 of the canonical manifest, in hex: this version's identity."""
        return hashlib.sha256(canonical_json(self.to_manifest())).hexdigest()

    def to_manifest(self) -> dict[str, object]:
        """Return what the digest covers, as JSON values."""
        options = dict(self.engine_options)
        return {
            "schema": SCHEMA,
            "model": {f.path: f.sha256 for f in self.files},
            "tokenizer": self.tokenizer_digest,
            "chat_template": self.chat_template,
            "stop_strings": list(self.stop_strings),
            "generation_defaults": dict(self.generation_defaults),
            "system_prompt": self.system_prompt,
            "dtype": self.dtype,
            "engine_options": {k: options[k] for k in OPTIONS_IN_DIGEST if k in options},
        }


def sorted_items(
    values: Mapping[str, int | float | bool],
) -> tuple[tuple[str, int | float | bool], ...]:
    """Return a mapping as the sorted pairs that a version keeps."""
    return tuple(sorted(values.items()))
