"""The sampling values a model's own ``generation_config.json`` asks for."""

import logging
from collections.abc import Mapping

logger = logging.getLogger(__name__)

_SUPPORTED = {
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "min_p": float,
    "repetition_penalty": float,
}
_NEUTRAL = {"no_repeat_ngram_size": 0, "typical_p": 1.0}
"""Values that change nothing; another one is asked for in vain, so it is logged."""


def generation_defaults(
    config: Mapping[str, object], *, model: str
) -> tuple[tuple[str, float], ...]:
    """Return what a request gets when it gives none, sorted by name.

    ``do_sample: false`` is a temperature of 0, whatever temperature stands beside it.

    Args:
        config: The JSON object of ``generation_config.json``; empty when there is none.
        model: What to call it in the log.
    """
    found: dict[str, float] = {}
    for name, kind in _SUPPORTED.items():
        value = config.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[name] = kind(value)
    if config.get("do_sample") is False:
        found["temperature"] = 0.0
    for name, neutral in _NEUTRAL.items():
        if config.get(name, neutral) not in (neutral, None):
            logger.warning("%s asks for %s = %r: not supported", model, name, config[name])
    return tuple(sorted(found.items()))
