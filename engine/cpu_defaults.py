"""What the CPU kernels' libraries read from the environment, once, as torch is imported.

Call before that; whoever embeds the engine in a program of theirs may do the same. What the
user has set is theirs. Knows no torch.
"""

from collections.abc import MutableMapping

CPU_DEFAULTS = {
    # Threads that wait by spinning are slowed many times over by whatever else uses the CPU,
    # and burn it while they wait.
    "OMP_WAIT_POLICY": "passive",
    # Kernels are kept for each shape ever met, and nearly each step has a new one: 1,024 of
    # them took 200 MB of SmolLM2's 1.2 GB, and for thousands of requests went on growing.
    "LRU_CACHE_CAPACITY": "16",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
}
"""Variable to value; the caches count kernels."""


def set_cpu_defaults(environ: MutableMapping[str, str]) -> None:
    """Set in *environ* what is not set there."""
    for name, value in CPU_DEFAULTS.items():
        environ.setdefault(name, value)
