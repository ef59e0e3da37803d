"""A real uvicorn server on an ephemeral port, over the fake engine."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx2

from failsoft.config.http import HttpConfig
from failsoft.engine.http.engine_port import EnginePort
from failsoft.engine.http.metrics import ServerMetrics
from failsoft.engine.http.served import ServedModel, ServerState
from failsoft.engine.http.server import EngineServer, base_url, bind
from failsoft.engine.structured.compiler import Compiler
from failsoft.engine.structured.token_table import build_table
from failsoft.engine.text.codec import TextCodec
from tests.engine.fake_engine import FakeEngine
from tests.engine.tiny_tokenizer import (
    TEMPLATE,
    byte_level_tokenizer,
    chat_tokenizer,
    token_id,
)

MODEL = "tiny-instruct"
DIGEST = "ab12" * 16


def ids_of(text: str) -> list[int]:
    """Token ids of a text."""
    return list(byte_level_tokenizer().encode(text, add_special_tokens=False).ids)


def answer(text: str) -> list[int]:
    """Token ids of an answer, its end token included."""
    return [*ids_of(text), token_id(byte_level_tokenizer(), "<|im_end|>")]


@cache
def tiny_compiler(num_padding: int = 0) -> Compiler:
    """Compiles grammars for the tiny tokenizer, and logits wider than it by *num_padding*."""
    tokenizer = byte_level_tokenizer()
    vocab_size = tokenizer.get_vocab_size() + num_padding
    table = build_table(
        tokenizer, vocab_size=vocab_size, eos_token_ids=[token_id(tokenizer, "<|im_end|>")]
    )
    return Compiler(table, vocab_size=vocab_size)


def make_served(**changes: Any) -> ServedModel:
    """The tiny model as a version."""
    chat_template = changes.pop("chat_template", TEMPLATE)
    system_prompt = changes.pop("system_prompt", None)
    codec = TextCodec(chat_tokenizer(), chat_template=chat_template, system_prompt=system_prompt)
    fields: dict[str, Any] = {
        "name": MODEL,
        "version_digest": DIGEST,
        "created": 1_700_000_000,
        "codec": codec,
        "max_model_len": 512,
        "vocab_size": byte_level_tokenizer().get_vocab_size(),
        "eos_token_ids": frozenset({token_id(byte_level_tokenizer(), "<|im_end|>")}),
        "compiler": tiny_compiler(),
    }
    return ServedModel(**{**fields, **changes})


def make_state(engine: EnginePort, served: ServedModel | None = None, **config: Any) -> ServerState:
    """The routes' state over an engine."""
    served = served or make_served()
    return ServerState(
        engine=engine,
        served=served,
        config=HttpConfig(**{"port": 0, **config}),
        metrics=ServerMetrics(engine, served.name, version_digest=served.version_digest),
    )


@dataclass(frozen=True, kw_only=True)
class Rig:
    """A running server."""

    engine: FakeEngine
    state: ServerState
    server: EngineServer
    url: str
    client: httpx2.Client

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    def post(self, path: str, **kwargs: Any) -> httpx2.Response:
        """Send a POST; safe on any thread."""
        return self.client.post(path, **kwargs)

    def get(self, path: str, **kwargs: Any) -> httpx2.Response:
        """Send a GET; safe on any thread."""
        return self.client.get(path, **kwargs)

    def chat(self, content: str = "hi", **fields: Any) -> httpx2.Response:
        """Ask one chat question."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": content}], **fields}
        return self.post("/v1/chat/completions", json=body)

    def connect(self) -> socket.socket:
        """Open a raw connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)


@contextlib.contextmanager
def running(engine: FakeEngine, served: ServedModel | None = None, **config: Any) -> Iterator[Rig]:
    """Serve *engine* on a thread until the block ends."""
    state = make_state(engine, served, **config)
    try:
        with serving(state) as (server, url, client):
            yield Rig(engine=engine, state=state, server=server, url=url, client=client)
    finally:
        engine.close()


@contextlib.contextmanager
def serving(state: ServerState) -> Iterator[tuple[EngineServer, str, httpx2.Client]]:
    """Serve *state* on a thread until the block ends; yield server, URL and a client."""
    is_ready = threading.Event()
    server = EngineServer(state, drain_s=1.0, on_ready=is_ready.set)
    sock = bind("127.0.0.1", 0)
    thread = threading.Thread(target=lambda: server.run(sockets=[sock]))
    thread.start()
    try:
        assert is_ready.wait(30)
        url = base_url(sock)
        with httpx2.Client(base_url=url, timeout=60, verify=False) as client:
            yield server, url, client
    finally:
        server.should_exit = True
        thread.join()
        sock.close()


def wait_until(condition: Callable[[], bool], timeout_s: float = 20.0) -> bool:
    """Poll for something another thread does."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def raw_post(path: str, body: bytes, *headers: str) -> bytes:
    """A whole HTTP/1.1 POST as bytes."""
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def events_of(text: str) -> list[str]:
    """The data of each server-sent event; each must end with a blank line."""
    assert text.endswith("\n\n")
    blocks = text.removesuffix("\n\n").split("\n\n")
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks)
    return [block.removeprefix("data: ") for block in blocks]
