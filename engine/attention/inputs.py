"""One step's rows as tensors: packed tokens, where their KV goes, what each may see.

Built once a step and read by every attention site. Positions are absolute within
a sequence; rows are packed one behind the other, none padded to another's length.
"""

import math
from dataclasses import dataclass, field

import torch

BUCKET_RATIO = 0.6
"""Rows share one padded batch while the shortest has this share of the longest's blocks.

Measured on CPU: padding beyond it costs more than another batch's calls."""

BUCKET_POSITIONS = 8192
"""Key positions that one such batch gathers at most, if it has more than one row, on CPU.

What it gathers should be in the processor's cache when it is multiplied: of 100 rows with 60 to
450 positions each, gathered at once, reading and writing memory cost more than the products."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSpan:
    """Where one row's tokens lie in the pack, and its context."""

    pack_start: int
    num_tokens: int
    context_len: int
    """Tokens of the sequence whose KV is there after this step."""
    blocks: tuple[int, ...]

    @property
    def start(self) -> int:
        """Position of its first packed token."""
        return self.context_len - self.num_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeBucket:
    """Rows of one new token each and similar context, padded to the longest.

    ``pack_index``: ``(num_rows,)`` token of each row in the pack.
    ``blocks``: ``(num_rows, blocks_per_row)``, padded with the row's own first block.
    ``hidden``: bool ``(num_rows, 1, blocks_per_row * block_size)``, True where a key
    must not be seen; None when every key may be.
    """

    pack_index: torch.Tensor
    blocks: torch.Tensor
    hidden: torch.Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRow:
    """A row of several new tokens, with the blocks a window lets it see.

    ``visible``: bool ``(num_tokens, num_keys)``; None means plain causal from position 0.
    ``first_key``: position of the first gathered key.
    """

    span: RowSpan
    blocks: torch.Tensor
    visible: torch.Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedKeys:
    """Every row's whole context packed on one axis, for kernels of variable length.

    ``slots``: ``(num_keys,)`` where each key lies in the pool.
    ``cu_query``, ``cu_key``: int32 ``(num_rows + 1,)`` running sums of lengths.
    """

    slots: torch.Tensor
    cu_query: torch.Tensor
    cu_key: torch.Tensor
    max_query: int
    max_key: int


@dataclass(slots=True, kw_only=True)
class AttentionInputs:
    """What every site of one forward reads.

    Args:
        slots: ``(num_tokens,)`` where each packed token's KV goes.
        rows: In packing order.
        block_size: Tokens in a KV block.
    """

    slots: torch.Tensor
    rows: tuple[RowSpan, ...]
    block_size: int
    next_site: int = 0
    """Counts the attention calls of this forward."""
    _buckets: dict[int | None, tuple[DecodeBucket, ...]] = field(default_factory=dict)
    _prompts: dict[int | None, tuple[PromptRow, ...]] = field(default_factory=dict)
    _packed: PackedKeys | None = None

    def decode_buckets(self, window: int | None) -> tuple[DecodeBucket, ...]:
        """Return the single-token rows in buckets, as a site with *window* sees them."""
        if window not in self._buckets:
            self._buckets[window] = self._build_buckets(window)
        return self._buckets[window]

    def prompt_rows(self, window: int | None) -> tuple[PromptRow, ...]:
        """Return the rows of several tokens, as a site with *window* sees them."""
        if window not in self._prompts:
            spans = (span for span in self.rows if span.num_tokens > 1)
            self._prompts[window] = tuple(self._prompt_row(span, window) for span in spans)
        return self._prompts[window]

    def packed_keys(self) -> PackedKeys:
        """Return every row's context on one axis, rows in packing order."""
        if self._packed is None:
            self._packed = self._pack_keys()
        return self._packed

    def _pack_keys(self) -> PackedKeys:
        device, size = self.slots.device, self.block_size
        slots: list[int] = []
        cu_query, cu_key = [0], [0]
        for span in self.rows:
            slots.extend(
                span.blocks[position // size] * size + position % size
                for position in range(span.context_len)
            )
            cu_query.append(cu_query[-1] + span.num_tokens)
            cu_key.append(cu_key[-1] + span.context_len)
        return PackedKeys(
            slots=torch.tensor(slots, device=device),
            cu_query=torch.tensor(cu_query, dtype=torch.int32, device=device),
            cu_key=torch.tensor(cu_key, dtype=torch.int32, device=device),
            max_query=max(span.num_tokens for span in self.rows),
            max_key=max(span.context_len for span in self.rows),
        )

    def _first_block(self, position: int, window: int | None) -> int:
        """Index in the block table of the first block that a query at *position* sees."""
        if window is None:
            return 0
        return max(0, position - window + 1) // self.block_size

    def _build_buckets(self, window: int | None) -> tuple[DecodeBucket, ...]:
        decodes = [
            (span, span.blocks[self._first_block(span.start, window) :])
            for span in self.rows
            if span.num_tokens == 1
        ]
        decodes.sort(key=lambda entry: len(entry[1]), reverse=True)
        is_cpu = self.slots.device.type == "cpu"
        most_blocks = BUCKET_POSITIONS / self.block_size if is_cpu else math.inf
        buckets: list[DecodeBucket] = []
        first = 0
        for index in range(1, len(decodes) + 1):
            longest = len(decodes[first][1])
            is_full = (
                index == len(decodes)
                or len(decodes[index][1]) < BUCKET_RATIO * longest
                or (index + 1 - first) * longest > most_blocks
            )
            if is_full:
                buckets.append(self._bucket(decodes[first:index], window))
                first = index
        return tuple(buckets) if decodes else ()

    def _bucket(
        self, decodes: list[tuple[RowSpan, tuple[int, ...]]], window: int | None
    ) -> DecodeBucket:
        longest = len(decodes[0][1])
        device = self.slots.device
        table = [[*blocks, *([blocks[0]] * (longest - len(blocks)))] for _, blocks in decodes]
        low, high = [], []
        for span, blocks in decodes:
            first_key = (len(span.blocks) - len(blocks)) * self.block_size
            oldest = 0 if window is None else max(0, span.start - window + 1)
            low.append(oldest - first_key)
            high.append(span.context_len - first_key)
        hidden = None
        if any(low) or any(end != longest * self.block_size for end in high):
            column = torch.arange(longest * self.block_size, device=device)
            lows = torch.tensor(low, device=device)[:, None]
            highs = torch.tensor(high, device=device)[:, None]
            hidden = ((column < lows) | (column >= highs))[:, None, :]
        return DecodeBucket(
            pack_index=torch.tensor([span.pack_start for span, _ in decodes], device=device),
            blocks=torch.tensor(table, device=device),
            hidden=hidden,
        )

    def _prompt_row(self, span: RowSpan, window: int | None) -> PromptRow:
        device = self.slots.device
        first_block = self._first_block(span.start, window)
        first_key = first_block * self.block_size
        blocks = torch.tensor(span.blocks[first_block:], device=device)[None, :]
        is_plain = span.start == 0 and (window is None or span.context_len <= window)
        if is_plain:
            return PromptRow(span=span, blocks=blocks, visible=None)
        query = torch.arange(span.start, span.context_len, device=device)[:, None]
        key = torch.arange(first_key, span.context_len, device=device)[None, :]
        visible = key <= query
        if window is not None:
            visible &= key > query - window
        return PromptRow(span=span, blocks=blocks, visible=visible)
