"""A server over a real engine: a random model that speaks the tiny tokenizer's tokens.

Its logits are wider than the tokenizer, as those of many models are. What it says is
noise, so whatever sense an answer makes is its grammar's doing.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx2

from failsoft.config.engine import EngineConfig
from failsoft.engine.engine import Engine
from tests.engine.architectures import SERVED, make_model
from tests.engine.http.real_rig import serving_model
from tests.engine.http.rig import MODEL, make_served, tiny_compiler
from tests.engine.tiny_tokenizer import byte_level_tokenizer

NUM_PADDING = 9


@dataclass(frozen=True, kw_only=True)
class TinyServer:
    """A running server and its engine."""

    engine: Engine
    url: str
    client: httpx2.Client

    def chat(self, content: str = "hi", **fields: Any) -> httpx2.Response:
        """Ask one chat question; safe on any thread."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": content}], **fields}
        return self.client.post("/v1/chat/completions", json=body)


@contextlib.contextmanager
def tiny_server(
    *, before_forward: Callable[[], None] | None = None, **config: Any
) -> Iterator[TinyServer]:
    """Serve the random model until the block ends.

    Args:
        before_forward: Called on the engine's thread before each forward: to slow or halt it.
        config: Fields of the engine's configuration.
    """
    vocab_size = byte_level_tokenizer().get_vocab_size() + NUM_PADDING
    settings = {**SERVED["llama"], "vocab_size": vocab_size, "max_position_embeddings": 1024}
    served = make_served(
        vocab_size=vocab_size, max_model_len=1024, compiler=tiny_compiler(NUM_PADDING)
    )

    def make() -> Any:
        model = make_model("llama", settings)
        if before_forward is not None:
            model.register_forward_pre_hook(lambda *_: before_forward())
        return model

    opened = serving_model(make, served, EngineConfig(num_threads=1, **config))
    with opened as (engine, _, url, client):
        yield TinyServer(engine=engine, url=url, client=client)
