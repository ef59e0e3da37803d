"""Reads what a GGUF file says of itself, without torch and without its long arrays.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3,
little-endian. Arrays (vocabulary, merges) are skipped: reading SmolLM2's takes
seconds in Python, skipping them milliseconds.
"""

import struct
from pathlib import Path
from typing import BinaryIO, NamedTuple

from failsoft.errors import UnsupportedModelError

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?"}
_SCALARS |= {10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_MAX_STRING_BYTES = 16 * 1024**2
"""A longer string means a broken file; a chat template has kilobytes."""
_MAX_ENTRIES = 262_144
"""More keys or tensors mean a broken file."""


class GgufHeader(NamedTuple):
    """A GGUF file's metadata: every scalar and string by key, and the tensors' names."""

    metadata: dict[str, int | float | bool | str]
    tensor_names: frozenset[str]
    strings: dict[str, list[str]]
    """The array of strings that was asked for, by its key."""

    @property
    def architecture(self) -> str:
        """llama.cpp's name of the architecture, such as ``llama`` or ``gemma3``."""
        return str(self.metadata["general.architecture"])

    @property
    def chat_template(self) -> str | None:
        """The Jinja text the file brings, or None."""
        template = self.metadata.get("tokenizer.chat_template")
        return template if isinstance(template, str) and template else None

    @property
    def licence(self) -> str | None:
        """What the file says of its licence, or None."""
        licence = self.metadata.get("general.license")
        return licence if isinstance(licence, str) else None


def read_gguf_header(path: Path) -> GgufHeader:
    """Read the metadata of the GGUF file at *path*.

    Raises:
        UnsupportedModelError: It is no GGUF file, of another version, or broken.
    """
    return _read_checked(path, keep=None)


def read_gguf_tokens(path: Path) -> list[str]:
    """Return the vocabulary of the GGUF file at *path*, by token id.

    Raises:
        UnsupportedModelError: It is no whole GGUF file.
    """
    wanted = "tokenizer.ggml.tokens"
    header = _read_checked(path, keep=wanted)
    return header.strings.get(wanted, [])


def _read_checked(path: Path, *, keep: str | None) -> GgufHeader:
    try:
        with path.open("rb") as file:
            return _read(file, keep)
    except (struct.error, UnicodeDecodeError, KeyError, ValueError) as exc:
        raise UnsupportedModelError(
            model=str(path), reason=f"it is not a whole GGUF file of version 2 or 3 ({exc})"
        ) from exc


def _read(file: BinaryIO, keep: str | None) -> GgufHeader:
    if file.read(4) != b"GGUF":
        raise ValueError("it does not start with GGUF")
    version, num_tensors, num_keys = _unpack(file, "<IQQ")
    if version not in (2, 3) or max(num_keys, num_tensors) > _MAX_ENTRIES:
        raise ValueError(f"version {version}, {num_keys} keys, {num_tensors} tensors")
    metadata: dict[str, int | float | bool | str] = {}
    strings: dict[str, list[str]] = {}
    for _ in range(num_keys):
        key = _read_string(file)
        (kind,) = _unpack(file, "<I")
        if key == keep and kind == _ARRAY:
            strings[key] = _read_strings(file)
            continue
        value = _read_value(file, kind)
        if value is not None:
            metadata[key] = value
    if "general.architecture" not in metadata:
        raise ValueError("it names no architecture")
    names = frozenset(_read_tensor_name(file) for _ in range(num_tensors))
    return GgufHeader(metadata=metadata, tensor_names=names, strings=strings)


def _unpack(file: BinaryIO, layout: str) -> tuple[int, ...]:
    return struct.unpack(layout, file.read(struct.calcsize(layout)))


def _read_string(file: BinaryIO) -> str:
    (size,) = _unpack(file, "<Q")
    if size > _MAX_STRING_BYTES:
        raise ValueError(f"a string of {size} bytes")
    data = file.read(size)
    if len(data) != size:
        raise ValueError("it ends within a string")
    return data.decode("utf-8")


def _read_value(file: BinaryIO, kind: int) -> int | float | bool | str | None:
    if kind == _STRING:
        return _read_string(file)
    if kind == _ARRAY:
        _skip_array(file)
        return None
    return _unpack(file, _SCALARS[kind])[0]


def _read_tensor_name(file: BinaryIO) -> str:
    name = _read_string(file)
    (num_dims,) = _unpack(file, "<I")
    file.seek(8 * num_dims + 4 + 8, 1)  # dimensions, type, offset
    return name


def _read_strings(file: BinaryIO) -> list[str]:
    kind, length = _unpack(file, "<IQ")
    if kind != _STRING:
        raise ValueError("an array of strings is none")
    return [_read_string(file) for _ in range(length)]


def _skip_array(file: BinaryIO) -> None:
    kind, length = _unpack(file, "<IQ")
    if kind == _STRING:
        for _ in range(length):
            (size,) = _unpack(file, "<Q")
            file.seek(size, 1)
    elif kind == _ARRAY:
        for _ in range(length):
            _skip_array(file)
    else:
        file.seek(length * struct.calcsize(_SCALARS[kind]), 1)
