"""A server over a real engine: a random model that speaks the tiny tokenizer's tokens.

Its logits are wider than the tokenizer, as those of many models are. What it says is
noise, so whatever sense an answer makes is its grammar's doing.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2

from failsoft.config.engine import EngineConfig
from failsoft.engine.engine import Engine
from failsoft.engine.prepare import prepare
from tests.engine.architectures import SERVED, make_model
from tests.engine.http.rig import MODEL, make_served, make_state, serving, tiny_compiler
from tests.engine.tiny_tokenizer import byte_level_tokenizer, token_id

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
def tiny_server(**config: Any) -> Iterator[TinyServer]:
    """Serve the random model until the block ends."""
    tokenizer = byte_level_tokenizer()
    vocab_size = tokenizer.get_vocab_size() + NUM_PADDING
    eos = frozenset({token_id(tokenizer, "<|im_end|>")})
    settings = {**SERVED["llama"], "vocab_size": vocab_size, "max_position_embeddings": 1024}
    engine_config = EngineConfig(num_threads=1, **config)
    prepared = prepare(
        make_model("llama", settings),
        name=MODEL,
        vocab_size=vocab_size,
        max_model_len=1024,
        config=engine_config,
    )
    engine = Engine.from_prepared(
        prepared,
        vocab_size=vocab_size,
        eos_token_ids=eos,
        version_digest="0" * 64,
        config=engine_config,
    )
    served = make_served(
        vocab_size=vocab_size,
        max_model_len=prepared.max_model_len,
        compiler=tiny_compiler(NUM_PADDING),
    )
    with engine, serving(make_state(engine, served)) as (_, url, client):
        yield TinyServer(engine=engine, url=url, client=client)
