"""KV blocks: who holds which, which are free, and which can serve a prefix hit.

Knows block numbers and token ids, nothing of tensors, requests or scheduling.
A block holds the keys and values of ``block_size`` consecutive tokens in every
layer. Not thread-safe: the engine's thread owns it.

A full block's *key* is a sha256 chained over everything before it, so equal
keys mean an equal prefix; the stored token ids are compared as well, so a
collision would be harmless. A salt enters the first block's key and with it
every key after: tenants with different salts share nothing.
"""

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from failsoft.errors import OutOfBlocksError


def root_key(*, version_digest: str, salt: str) -> bytes:
    """Return the key that a chain starts from; parts are length-tagged so they cannot blur."""
    chain = hashlib.sha256(b"failsoft-kv-1")
    for kind, part in ((b"version", version_digest), (b"salt", salt)):
        data = part.encode("utf-8", "surrogatepass")
        chain.update(kind + len(data).to_bytes(8, "little") + data)
    return chain.digest()


def chain_key(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Return the key of the block that holds *token_ids* and follows *parent*."""
    return hashlib.sha256(parent + array("q", token_ids).tobytes()).digest()


@dataclass(slots=True)
class _Block:
    ref_count: int = 0
    key: bytes | None = None
    token_ids: tuple[int, ...] = ()
    is_tainted: bool = False


class BlockPool:
    """All KV blocks of one engine, with reference counts and a prefix cache.

    A block nobody holds is free. A free block that has a key keeps its content
    and can be matched until it is taken for something else; such blocks are
    taken last, least recently freed first.

    Args:
        num_blocks: Blocks in the pool, at least 1.
        block_size: Tokens in a block, at least 1.
    """

    def __init__(self, *, num_blocks: int, block_size: int) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"num_blocks={num_blocks}, block_size={block_size}: both need 1")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._blocks = [_Block() for _ in range(num_blocks)]
        self._by_key: dict[bytes, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self._to_scrub: list[int] = []
        self._num_cached = 0

    @property
    def num_free(self) -> int:
        """Blocks nobody holds, cached ones included."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """Blocks somebody holds."""
        return self.num_blocks - len(self._free)

    @property
    def num_cached(self) -> int:
        """Free blocks that can still serve a prefix hit."""
        return self._num_cached

    def num_blocks_for(self, num_tokens: int) -> int:
        """Return how many blocks hold *num_tokens* tokens."""
        return -(-num_tokens // self.block_size)

    def allocate(self, count: int) -> list[int]:
        """Take *count* free blocks, each held once; what they cached is forgotten.

        Raises:
            OutOfBlocksError: Fewer are free; nothing was taken.
        """
        if count > len(self._free):
            raise OutOfBlocksError(needed=count, free=len(self._free))
        taken = [self._free.popitem(last=False)[0] for _ in range(count)]
        for number in taken:
            block = self._blocks[number]
            self._num_cached -= block.key is not None
            self._forget(number)
            block.ref_count = 1
            if block.is_tainted:
                block.is_tainted = False
                self._to_scrub.append(number)
        return taken

    def taint(self, numbers: Iterable[int]) -> None:
        """Mark held blocks of a failed row: never matched again, zeroed before its next use."""
        numbers = list(numbers)
        self.distrust(numbers)
        for number in numbers:
            self._forget(number)

    def distrust(self, numbers: Iterable[int]) -> None:
        """Mark held blocks of a prompt that no logits have vouched for yet.

        They stay matchable (an equal prefix would compute the same), but may hold NaN, so
        whoever takes them for something else has them zeroed first.
        """
        for number in numbers:
            assert self._blocks[number].ref_count > 0, f"block {number} tainted while free"
            self._blocks[number].is_tainted = True

    def take_to_scrub(self) -> tuple[int, ...]:
        """Return the tainted blocks allocated since the last call; zero them before writing."""
        numbers, self._to_scrub = tuple(self._to_scrub), []
        return numbers

    def match(self, keys: Sequence[bytes], token_ids: Sequence[int]) -> list[int]:
        """Hold and return the cached blocks of the longest prefix that *keys* describes.

        Blocks are held at once, or an allocation in the same step could take them.

        Args:
            keys: Chained keys of the prompt's leading full blocks.
            token_ids: The prompt, at least ``len(keys) * block_size`` tokens.
        """
        matched: list[int] = []
        size = self.block_size
        for index, key in enumerate(keys):
            number = self._by_key.get(key)
            if number is None:
                break
            if self._blocks[number].token_ids != tuple(
                token_ids[index * size : (index + 1) * size]
            ):
                break
            matched.append(number)
        for number in matched:
            self._hold(number)
        return matched

    def release(self, numbers: Iterable[int]) -> None:
        """Give up one hold on each block, in the order of the block table.

        The last block becomes the first to be reused, so that prefix heads live longest.
        """
        for number in reversed(list(numbers)):
            block = self._blocks[number]
            assert block.ref_count > 0, f"block {number} released more often than held"
            block.ref_count -= 1
            if block.ref_count:
                continue
            self._free[number] = None
            self._num_cached += block.key is not None
            if block.key is None:
                self._free.move_to_end(number, last=False)

    def register(self, number: int, *, key: bytes, token_ids: Sequence[int]) -> None:
        """Offer a held, full and computed block for prefix hits.

        Where an equal prefix is registered already the first one stays.
        """
        block = self._blocks[number]
        assert block.ref_count > 0, f"block {number} registered while free"
        if block.key is None and key not in self._by_key and not block.is_tainted:
            block.key = key
            block.token_ids = tuple(token_ids)
            self._by_key[key] = number

    def check(self) -> None:
        """Raise AssertionError unless the books balance; cheap enough for idle time."""
        free = set(self._free)
        for number, block in enumerate(self._blocks):
            assert (block.ref_count == 0) == (number in free), f"block {number} neither or both"
            if block.key is not None:
                assert self._by_key.get(block.key) == number, f"block {number} has a stale key"
        cached = sum(1 for number in free if self._blocks[number].key is not None)
        assert cached == self._num_cached, f"{self._num_cached} cached counted, {cached} found"
        assert len(self._by_key) == sum(1 for block in self._blocks if block.key is not None)

    def _hold(self, number: int) -> None:
        block = self._blocks[number]
        if block.ref_count == 0:
            del self._free[number]
            self._num_cached -= block.key is not None
        block.ref_count += 1

    def _forget(self, number: int) -> None:
        block = self._blocks[number]
        if block.key is not None:
            del self._by_key[block.key]
            block.key = None
            block.token_ids = ()
