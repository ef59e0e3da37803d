"""How many KV blocks an engine takes: one rule for it and for who asks before it starts.

Knows nothing of torch. Units: bytes, tokens, blocks of ``config.block_size`` tokens.
"""

from failsoft.config.engine import EngineConfig

_TOKENS_PER_RUNNING = 512
"""Room taken for each running request where the longest request needs less in all."""


def blocks_in_pool(
    config: EngineConfig, *, kv_bytes_per_token: int, max_model_len: int
) -> tuple[int, int]:
    """Return (blocks of the pool, bytes that they take).

    Args:
        config: The engine's settings.
        kv_bytes_per_token: Of one token's keys and values, all attention calls together.
        max_model_len: Prompt plus output tokens of the longest request.
    """
    block_bytes = config.block_size * kv_bytes_per_token
    num_blocks = config.num_kv_blocks
    if num_blocks is None:
        wanted = max(max_model_len, _TOKENS_PER_RUNNING * config.max_running)
        num_blocks = min(
            -(-wanted // config.block_size), max(1, config.kv_memory_bytes // block_bytes)
        )
    return num_blocks, num_blocks * block_bytes
