"""The engine's settings. Units: tokens, blocks of ``block_size`` tokens, bytes, seconds."""

from dataclasses import dataclass

from failsoft.errors import ConfigError

DTYPES = ("auto", "float32", "bfloat16", "int8")
DEVICES = ("auto", "cpu", "cuda")


def _at_least(key: str, value: float | None, low: float) -> None:
    if value is not None and not value >= low:
        raise ConfigError(key=key, value=value, allowed=f"a number of at least {low}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How one engine runs its model; none of it changes what the model answers.

    Raises:
        ConfigError: A value is out of range; the error names the key.
    """

    dtype: str = "auto"
    """``auto`` measures bfloat16 against float32 once on this machine and records the choice.
    ``int8`` multiplies 8-bit weights, one scale a channel, with 8-bit activations, one a token."""
    device: str = "auto"
    """``auto`` takes a CUDA device where there is one, else the CPU."""
    max_running: int = 16
    """Requests in one forward at most."""
    max_step_tokens: int = 512
    """Tokens packed into one forward at most: bounds how long a decode waits for a prefill."""
    max_waiting: int = 256
    """Requests queued at most; the next one gets QueueFullError."""
    max_model_len: int | None = None
    """Prompt plus output tokens of one request at most; None takes the model's own limit."""
    block_size: int = 16
    """Tokens in one KV block."""
    num_kv_blocks: int | None = None
    """KV blocks in the pool; None takes room for the longest request, or for 512 tokens of
    each running one where that is more, within *kv_memory_bytes*."""
    kv_memory_bytes: int = 1024**3
    """Memory the KV pool may take when *num_kv_blocks* is None."""
    prefix_cache: bool = True
    aging_s: float = 10.0
    """Waiting this long lifts a request by one priority level, so that none starves."""
    drain_s: float = 30.0
    """How long a drain lets running requests finish."""
    num_threads: int | None = None
    """CPU threads of the forward; None takes one for each core."""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ConfigError(key="dtype", value=self.dtype, allowed="one of " + ", ".join(DTYPES))
        if self.device not in DEVICES:
            raise ConfigError(
                key="device", value=self.device, allowed="one of " + ", ".join(DEVICES)
            )
        _at_least("max_running", self.max_running, 1)
        _at_least("max_step_tokens", self.max_step_tokens, 1)
        _at_least("max_waiting", self.max_waiting, 1)
        _at_least("max_model_len", self.max_model_len, 2)
        _at_least("block_size", self.block_size, 1)
        _at_least("num_kv_blocks", self.num_kv_blocks, 1)
        _at_least("kv_memory_bytes", self.kv_memory_bytes, 1)
        _at_least("aging_s", self.aging_s, 0.001)
        _at_least("drain_s", self.drain_s, 0)
        _at_least("num_threads", self.num_threads, 1)
