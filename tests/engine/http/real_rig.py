"""The real engine with a tiny random model behind the real server."""

import contextlib
import json
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx2
import torch

from failsoft.config.engine import EngineConfig
from failsoft.engine.engine import Engine
from failsoft.engine.http.served import ServedModel
from failsoft.engine.prepare import prepare
from tests.engine.architectures import make_model
from tests.engine.http.rig import DIGEST, MODEL, events_of, make_served, make_state, serving

VOCAB = 320
"""Of the tiny byte-level tokenizer."""
NUM_BLOCKS = 160
"""KV blocks of four tokens."""


@dataclass(frozen=True, kw_only=True)
class RealRig:
    """A running server."""

    engine: Engine
    url: str
    client: httpx2.Client
    served: ServedModel

    def complete(self, prompt: Any = "the quick brown fox", **fields: Any) -> dict[str, Any]:
        """Continue a prompt and return the answer; safe on any thread."""
        return self._post("/v1/completions", {"prompt": prompt, **fields})

    def chat(self, content: str = "hello", **fields: Any) -> dict[str, Any]:
        """Ask a chat question and return the answer."""
        messages = fields.pop("messages", [{"role": "user", "content": content}])
        return self._post("/v1/chat/completions", {"messages": messages, **fields})

    def _post(self, path: str, fields: dict[str, Any]) -> dict[str, Any]:
        reply = self.client.post(path, json={"model": MODEL, "temperature": 0, **fields})
        assert reply.status_code == 200, reply.text
        body: dict[str, Any] = reply.json()
        return body

    def stream(self, path: str, **fields: Any) -> list[dict[str, Any]]:
        """Return the chunks of a streamed answer."""
        body = {"model": MODEL, "temperature": 0, "stream": True, **fields}
        reply = self.client.post(path, json=body)
        assert reply.status_code == 200, reply.text
        *chunks, done = events_of(reply.text)
        assert done == "[DONE]"
        return [json.loads(chunk) for chunk in chunks]

    @contextlib.contextmanager
    def load(self, count: int = 20, **fields: Any) -> Iterator[None]:
        """Keep *count* other requests coming until the block ends."""
        is_over = False

        def ask(number: int) -> None:
            turn = 0
            while not is_over:
                turn += 1
                prompt = [3 + (number * 31 + turn * 7 + n) % 300 for n in range(5 + number)]
                self.complete(prompt, max_tokens=12, temperature=1.0, **fields)

        with ThreadPoolExecutor(count) as pool:
            jobs = [pool.submit(ask, number) for number in range(count)]
            try:
                yield
            finally:
                is_over = True
            for job in jobs:
                job.result()


def tiny_model() -> Any:
    """A model of random weights whose logits are as wide as the tiny tokenizer."""
    return make_model("llama", {"vocab_size": VOCAB})


@contextlib.contextmanager
def running_real(*, num_blocks: int = NUM_BLOCKS, **settings: Any) -> Iterator[RealRig]:
    """Serve a tiny model of its own, with its own KV pool, until the block ends."""
    served = make_served(max_model_len=min(512, num_blocks * 4))
    config = EngineConfig(
        **{"block_size": 4, "num_kv_blocks": num_blocks, "max_step_tokens": 64, **settings}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # building a random model makes transformers talk
        prepared = prepare(
            tiny_model(), name=MODEL, vocab_size=VOCAB, max_model_len=512, config=config
        )
    engine = Engine.from_prepared(
        prepared,
        vocab_size=VOCAB,
        eos_token_ids=served.eos_token_ids,
        version_digest=DIGEST,
        config=config,
    )
    with engine, serving(make_state(engine, served)) as (_, url, client):
        yield RealRig(engine=engine, url=url, client=client, served=served)


def log_softmax(tokens: list[int]) -> torch.Tensor:
    """Return the plain model's log-softmax after each of *tokens*, ``(num_tokens, VOCAB)``."""
    with torch.inference_mode():
        logits: torch.Tensor = _plain_model()(torch.tensor([tokens])).logits[0]
    return logits.log_softmax(dim=-1)


@cache
def _plain_model() -> Any:
    return tiny_model()
