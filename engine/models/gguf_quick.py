"""Lets transformers read a GGUF file without walking through its vocabulary element by element.

``gguf.GGUFReader`` makes several numpy views of each array element and transformers
parses the file three times: 20 of the 24 s that SmolLM2 took to convert, 55 of 63 s
and 2 GB for Gemma 3. The weights need no vocabulary, only its length; the tokenizer
is read by transformers' own reader. Where a version of transformers differs, the
converter's comparison of every token with the file's fails, so nothing goes wrong
silently. Used in the converting process only.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gguf
import numpy as np

_LONG = 4096
"""Arrays with more elements are skipped; per-layer arrays are far shorter."""

_STRING, _ARRAY, _UINT8 = (
    gguf.GGUFValueType.STRING,
    gguf.GGUFValueType.ARRAY,
    gguf.GGUFValueType.UINT8,
)


class QuickReader(gguf.GGUFReader):
    """Reads long arrays as that many zeros."""

    def _get_field_parts(
        self, orig_offs: int, raw_type: int
    ) -> tuple[int, list[Any], list[int], list[Any]]:
        if raw_type == _ARRAY:
            kind, length = struct.unpack_from("<IQ", self.data.data, orig_offs)
            if length > _LONG and kind != _ARRAY:
                zero = np.zeros(1, dtype=np.uint8)
                size = 12 + self._elements_bytes(orig_offs + 12, kind, length)
                return size, [zero], [0] * length, [_ARRAY, _UINT8]
        parts: tuple[int, list[Any], list[int], list[Any]] = super()._get_field_parts(
            orig_offs, raw_type
        )
        return parts

    def _elements_bytes(self, start: int, kind: int, length: int) -> int:
        if kind != _STRING:
            itemsize = np.dtype(self.gguf_scalar_to_np[gguf.GGUFValueType(kind)]).itemsize
            return int(itemsize * length)
        data, position = self.data.data, start
        for _ in range(length):
            (size,) = struct.unpack_from("<Q", data, position)
            position += 8 + size
        return position - start


@contextmanager
def quick_gguf_reader() -> Iterator[None]:
    """Have transformers, which imports the reader at each use, take ``QuickReader``."""
    original = gguf.GGUFReader
    gguf.GGUFReader = QuickReader  # type: ignore[misc]
    try:
        yield
    finally:
        gguf.GGUFReader = original  # type: ignore[misc]
