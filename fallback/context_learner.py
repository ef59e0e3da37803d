"""Learns how long a request an endpoint takes, from its own list of models.

Asked once after an endpoint's first answer, beside the call and never in its way; a
refusal is tried again after a while. vLLM, SGLang and our engine put
``max_model_len`` into ``/v1/models``. Units: tokens, seconds.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from weakref import WeakKeyDictionary

from failsoft.errors import RungFailedError
from failsoft.fallback.endpoint import Endpoint, Target
from failsoft.fallback.outside_json import parse_json
from failsoft.fallback.transport import Transport

ASK_TIMEOUT_S = 5.0
ASK_AGAIN_S = 300.0
MAX_BYTES = 1024**2

Place = tuple[str, str]
"""URL and model: an engine's port changes with every start."""
Spawn = Callable[[Coroutine[Any, Any, None]], None]


class ContextLearner:
    """Remembers which endpoints were asked.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        # An endpoint that a reload replaced goes, and its successor is asked anew.
        self._next_ask_s: WeakKeyDictionary[Endpoint, dict[Place, float]] = WeakKeyDictionary()

    def on_answer(
        self, endpoint: Endpoint, target: Target, *, transport: Transport, spawn: Spawn
    ) -> None:
        """Take what *target* says of itself, or ask it if that is due."""
        if endpoint.has_own_context:
            return
        if target.context_tokens is not None:
            endpoint.context_tokens = target.context_tokens
            return
        next_ask_s = self._next_ask_s.setdefault(endpoint, {})
        place = (target.url, target.model)
        if self._clock() < next_ask_s.get(place, float("-inf")):
            return
        next_ask_s[place] = self._clock() + ASK_AGAIN_S
        spawn(self._ask(endpoint, target, transport, next_ask_s))

    async def _ask(
        self,
        endpoint: Endpoint,
        target: Target,
        transport: Transport,
        next_ask_s: dict[Place, float],
    ) -> None:
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                tokens = max_model_len(
                    await _models(target, transport, endpoint.name), target.model
                )
        except (RungFailedError, TimeoutError, ValueError):
            return  # not knowing is fine: the endpoint itself refuses what is too long
        if tokens is not None:
            endpoint.context_tokens = tokens
        next_ask_s[target.url, target.model] = float("inf")


async def _models(target: Target, transport: Transport, rung: str) -> object:
    headers = [("accept", "application/json")]
    if target.authorization is not None:
        headers.append(("authorization", target.authorization))
    reply = await transport.send(
        f"{target.url}/models", headers=headers, content=None, connect_s=ASK_TIMEOUT_S, rung=rung
    )
    try:
        raw = bytearray()
        while (piece := await reply.piece(ASK_TIMEOUT_S)) is not None:
            raw += piece
            if len(raw) > MAX_BYTES:
                raise ValueError("a list of models without end")
        return parse_json(raw) if reply.status == 200 else None
    finally:
        await reply.aclose()


def max_model_len(body: object, model: str) -> int | None:
    """Return *model*'s context in tokens as a ``/v1/models`` body says it; None when it does not.

    >>> max_model_len({"data": [{"id": "m", "max_model_len": 2048}]}, "m")
    2048
    """
    models = body.get("data") if isinstance(body, dict) else None
    for entry in models if isinstance(models, list) else []:
        if isinstance(entry, dict) and entry.get("id") == model:
            tokens = entry.get("max_model_len")
            is_count = isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0
            return tokens if is_count else None
    return None
