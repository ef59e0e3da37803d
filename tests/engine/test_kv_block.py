"""KV blocks: reference counts, the free queue and prefix hits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.engine.kv_block import BlockPool, chain_key, root_key
from failsoft.errors import OutOfBlocksError


def make_pool(num_blocks: int = 4, block_size: int = 2) -> BlockPool:
    return BlockPool(num_blocks=num_blocks, block_size=block_size)


def keys_of(tokens: list[int], size: int, salt: str = "") -> list[bytes]:
    keys = [root_key(version_digest="v", salt=salt)]
    for start in range(0, len(tokens) - size + 1, size):
        keys.append(chain_key(keys[-1], tokens[start : start + size]))
    return keys[1:]


def cache(pool: BlockPool, tokens: list[int], salt: str = "") -> list[int]:
    """Compute *tokens* into blocks, register them and let go."""
    keys = keys_of(tokens, pool.block_size, salt)
    blocks = pool.allocate(len(keys))
    for index, (block, key) in enumerate(zip(blocks, keys, strict=True)):
        size = pool.block_size
        pool.register(block, key=key, token_ids=tokens[index * size : (index + 1) * size])
    pool.release(blocks)
    return blocks


def test_allocating_more_than_is_free_takes_nothing() -> None:
    """A failed allocation leaves every block where it was."""
    pool = make_pool(num_blocks=2)

    with pytest.raises(OutOfBlocksError) as caught:
        pool.allocate(3)

    assert (caught.value.needed, caught.value.free) == (3, 2)
    assert pool.num_free == 2


def test_a_released_prefix_is_matched_and_held_at_once() -> None:
    """Matched blocks leave the free queue, or the same step could hand them out."""
    pool = make_pool()
    blocks = cache(pool, [1, 2, 3, 4])

    hit = pool.match(keys_of([1, 2, 3, 4], 2), [1, 2, 3, 4])

    assert hit == blocks
    assert pool.num_free == 2
    pool.check()


def test_another_salt_never_matches() -> None:
    """Tenants share no block, however equal their prompts."""
    pool = make_pool()
    cache(pool, [1, 2, 3, 4], salt="a")

    assert pool.match(keys_of([1, 2, 3, 4], 2, salt="b"), [1, 2, 3, 4]) == []


def test_parts_of_the_root_key_cannot_blur() -> None:
    """A digest that ends where a salt begins is another key (vllm#44701's kind)."""
    assert root_key(version_digest="ab", salt="c") != root_key(version_digest="a", salt="bc")


def test_a_key_collision_is_harmless() -> None:
    """Token ids are compared too, so a wrong key gives a miss, not a wrong text."""
    pool = make_pool()
    cache(pool, [1, 2])

    assert pool.match(keys_of([1, 2], 2), [8, 9]) == []


def test_unhashed_blocks_are_reused_before_cached_ones() -> None:
    """What can still serve a hit lives longest."""
    pool = make_pool(num_blocks=4)
    cached = cache(pool, [1, 2])
    plain = pool.allocate(1)
    pool.release(plain)

    assert pool.allocate(1) == plain
    assert cached[0] not in pool.allocate(2)


def test_a_prefix_head_outlives_its_tail() -> None:
    """Blocks are released last first, so eviction takes the end of a prompt."""
    pool = make_pool(num_blocks=3)
    head, _, _ = cache(pool, [1, 2, 3, 4, 5, 6])

    pool.allocate(2)

    assert pool.match(keys_of([1, 2], 2), [1, 2]) == [head]


def test_a_tainted_block_is_never_matched_and_is_scrubbed_once() -> None:
    """What a failed row wrote must not reach anybody else."""
    pool = make_pool(num_blocks=1)
    block = pool.allocate(1)
    key = keys_of([1, 2], 2)
    pool.register(block[0], key=key[0], token_ids=[1, 2])
    pool.taint(block)
    pool.release(block)

    assert pool.match(key, [1, 2]) == []
    assert pool.take_to_scrub() == ()
    assert pool.allocate(1) == block
    assert pool.take_to_scrub() == (block[0],)
    assert pool.take_to_scrub() == ()


def test_a_distrusted_block_can_be_matched_and_is_scrubbed_before_another_use() -> None:
    """A prompt cut off in the middle: an equal one may go on with its blocks."""
    pool = make_pool(num_blocks=1)
    block = pool.allocate(1)
    key = keys_of([1, 2], 2)
    pool.register(block[0], key=key[0], token_ids=[1, 2])
    pool.distrust(block)
    pool.release(block)

    assert pool.match(key, [1, 2]) == block
    assert pool.take_to_scrub() == ()
    pool.release(block)
    assert pool.allocate(1) == block
    assert pool.take_to_scrub() == (block[0],)


def test_check_finds_a_leak() -> None:
    """The invariant check is not blind: a block both held and free is found."""
    pool = make_pool()
    pool.allocate(1)
    pool._free[0] = None

    with pytest.raises(AssertionError, match="block 0"):
        pool.check()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=60))
def test_books_balance_after_any_story(story: list[tuple[int, int]]) -> None:
    """Any order of allocate, match, register, taint and release keeps the counts right."""
    pool = make_pool(num_blocks=6)
    held: list[list[int]] = []
    for action, amount in story:
        if action == 0 and pool.num_free >= amount:
            held.append(pool.allocate(amount))
        elif action == 1 and held:
            pool.release(held.pop(amount % len(held)))
        elif action == 2 and held:
            tokens = list(range(2 * len(held[-1])))
            for index, key in enumerate(keys_of(tokens, 2)):
                ids = tokens[2 * index : 2 * index + 2]
                pool.register(held[-1][index], key=key, token_ids=ids)
        elif action == 3:
            tokens = list(range(2 * amount))
            hit = pool.match(keys_of(tokens, 2), tokens)
            if hit:
                held.append(hit)

        pool.check()
        references = [number for blocks in held for number in blocks]
        assert pool.num_used == len(set(references))
