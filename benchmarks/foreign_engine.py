"""A foreign engine as a rung: streams, is cut, is killed, all as the ladder's rules say.

    python -m benchmarks.foreign_engine --url http://127.0.0.1:8000/v1 --model NAME
    python -m benchmarks.foreign_engine --vllm VENV --weights FOLDER
    python -m benchmarks.foreign_engine --llama-server BINARY --weights FILE.gguf

With --url the engine is yours and is not killed. vLLM and llama.cpp's server are started
here on a free loopback port, from a virtual environment or a binary that you made; nothing
of them is part of failsoft. *FOLDER* is a Hugging Face folder (`failsoft models add NAME`
leaves one under ``conversions``). A proxy between ladder and engine cuts the stream.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.cutting_proxy import CuttingProxy
from benchmarks.engine_http import free_port
from benchmarks.proof import Line, finish, run_proof
from failsoft.config.settings import (
    EndpointConfig,
    LadderConfig,
    RetryConfig,
    Settings,
    StoreConfig,
    TimeoutConfig,
)
from failsoft.errors import LadderExhaustedError, StreamInterruptedError
from failsoft.fallback.async_client import AsyncClient
from failsoft.fallback.reply import Reply
from tests.fallback.fault_server import FaultServer

START_S = 300.0
MODEL = "foreign"
ASK = [{"role": "user", "content": "What is the capital of France?"}]
"""Answered in one sentence that ends by itself: only such a reply is kept."""
OTHER = [{"role": "user", "content": "Tell me about the moon."}]
SAMPLING: dict[str, Any] = {"temperature": 0, "max_tokens": 48}
TIMEOUTS = TimeoutConfig(connect_s=2, first_token_s=60, gap_s=20)
"""A CPU shared with others: what is timed here is the ladder's judgement, not speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A foreign engine that answers."""

    url: str
    model: str
    process: "subprocess.Popen[bytes] | None"
    """None when it is the caller's own, which is not killed."""


@contextlib.contextmanager
def started(line: list[str], *, port: int, env: dict[str, str]) -> Iterator[Engine]:
    """Yield the engine that *line* starts, once it lists its models; it is killed at the end."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        line, stdout=quiet, stderr=quiet, env={**os.environ, **env}, start_new_session=True
    )
    url = f"http://127.0.0.1:{port}/v1"
    try:
        _wait_ready(url, process)
        yield Engine(url=url, model=MODEL, process=process)
    finally:
        _kill(process)


def _wait_ready(url: str, process: "subprocess.Popen[bytes]") -> None:
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s and process.poll() is None:
        with contextlib.suppress(httpx2.HTTPError):
            if httpx2.get(f"{url}/models", timeout=2, trust_env=False).status_code == 200:
                return
        time.sleep(0.5)
    raise RuntimeError(f"no answer on {url}; it ended with {process.poll()}")


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill it and its children, -9."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def open_engine(options: argparse.Namespace) -> "contextlib.AbstractContextManager[Engine]":
    """Return the engine that the command line names."""
    if options.url:
        return contextlib.nullcontext(
            Engine(url=options.url.rstrip("/"), model=options.model, process=None)
        )
    port = free_port()
    if options.vllm:
        line = [f"{options.vllm}/bin/vllm", "serve", str(options.weights), "--enforce-eager"]
        line += ["--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)]
        line += ["--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "4"]
        return started(line, port=port, env={"VLLM_CPU_KVCACHE_SPACE": "1"})
    line = [str(options.llama_server), "-m", str(options.weights), "--alias", MODEL]
    line += ["--host", "127.0.0.1", "--port", str(port), "-t", "2", "-c", "2048"]
    return started(line, port=port, env={})


def settings_for(urls: dict[str, tuple[str, str]], folder: Path) -> Settings:
    """Return a ladder over *urls*, name to URL and model, with the cache below."""
    endpoints = {
        name: EndpointConfig(name=name, url=url, model=model) for name, (url, model) in urls.items()
    }
    ladder = LadderConfig(
        name="chat",
        rungs=(*urls, "cache"),
        deadline_s=120,
        retry=RetryConfig(attempts=2, base_s=0.05, cap_s=0.2),
        timeouts=TIMEOUTS,
    )
    return Settings(
        store=StoreConfig(url=f"sqlite:///{folder / 'foreign.db'}"),
        endpoints=endpoints,
        ladders={"chat": ladder},
    )


@contextlib.asynccontextmanager
async def scene(engine: Engine) -> AsyncIterator[tuple[AsyncClient, CuttingProxy, FaultServer]]:
    """Yield a client whose first rung is the engine behind a proxy, the second a test server."""
    port = int(engine.url.split(":")[2].split("/")[0])
    with FaultServer("B") as second, tempfile.TemporaryDirectory() as folder:
        async with CuttingProxy(port) as proxy:
            urls = {"foreign": (proxy.url, engine.model), "second": (second.url, "m")}
            async with AsyncClient(settings_for(urls, Path(folder)), environ={}) as client:
                yield client, proxy, second


async def read(client: AsyncClient, ask: Any) -> tuple[list[str], Reply]:
    """Return the deltas and the reply of one stream."""
    stream = client.stream(ask, **SAMPLING)
    deltas = [str(delta) async for delta in stream]
    return deltas, stream.reply


async def _measure(engine: Engine) -> list[Line]:
    async with scene(engine) as (client, proxy, second):
        lines = [await _streams(client), await _is_cut(client, proxy, second)]
        if engine.process is not None:
            lines.append(await _is_killed(client, engine, second))
            lines.append(await _nobody_left(client, second))
        return lines


async def _streams(client: AsyncClient) -> Line:
    whole = await client.chat(ASK, **SAMPLING)
    deltas, reply = await read(client, ASK)
    usage = reply.usage
    return Line(
        must_hold="streams: delta by delta, the same text as the whole reply, tokens counted",
        figure=f"{len(deltas)} deltas, {usage.num_prompt_tokens} + {usage.num_output_tokens} "
        f"tokens, rung {reply.rung}, model {reply.model}",
        has_passed=len(deltas) > 3
        and "".join(deltas) == reply.text == whole.text
        and reply.rung == whole.rung == "foreign"
        and (usage.num_output_tokens or 0) > 3,
    )


async def _is_cut(client: AsyncClient, proxy: CuttingProxy, second: FaultServer) -> Line:
    before, second_before = proxy.num_requests, second.hits
    proxy.events_to_cut = 6
    deltas: list[str] = []
    error: StreamInterruptedError | None = None
    try:
        async for delta in client.stream(OTHER, **SAMPLING):
            deltas.append(str(delta))  # noqa: PERF401 - what came before the error is wanted
    except StreamInterruptedError as exc:
        error = exc
    proxy.events_to_cut = None
    sent = proxy.num_requests - before
    return Line(
        must_hold="is cut mid-stream: a typed error with the text so far, no other rung, no retry",
        figure=f"{type(error).__name__} after {len(deltas)} deltas, {sent} request sent, "
        f"second rung asked {second.hits - second_before} times",
        has_passed=error is not None
        and "".join(deltas) == error.text != ""
        and sent == 1
        and second.hits == second_before,
    )


async def _is_killed(client: AsyncClient, engine: Engine, second: FaultServer) -> Line:
    assert engine.process is not None
    task = asyncio.create_task(client.chat(OTHER, **{**SAMPLING, "max_tokens": 512}))
    await asyncio.sleep(1.0)
    _kill(engine.process)
    reply = await task
    outcomes = [f"{a.endpoint} {a.outcome}" for a in reply.attempts]
    return Line(
        must_hold="is killed with SIGKILL under a running call: the next rung answers it whole",
        figure=f"rung {reply.rung}, {' then '.join(outcomes)}",
        has_passed=reply.rung == "second" and second.hits == 1 and "foreign" in outcomes[0],
    )


async def _nobody_left(client: AsyncClient, second: FaultServer) -> Line:
    second.plan(default={"do": "status", "status": 503})
    kept = await client.chat(ASK, **SAMPLING)
    try:
        await client.chat([{"role": "user", "content": "something new"}], **SAMPLING)
        error = None
    except LadderExhaustedError as exc:
        error = exc
    return Line(
        must_hold="with every model down: the kept reply with its age, else an honest error",
        figure=f"rung {kept.rung}, {kept.age_s or 0:.1f} s old; {type(error).__name__} "
        f"{error.status if error else ''} for a new prompt",
        has_passed=kept.rung == "cache" and kept.age_s is not None and error is not None,
    )


def measure(engine: Engine) -> Iterator[Line]:
    """Yield what the ladder made of *engine*."""
    yield from asyncio.run(_measure(engine))


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--url", help="an engine that runs, /v1 included")
    which.add_argument("--vllm", type=Path, help="a virtual environment with vLLM")
    which.add_argument("--llama-server", type=Path, help="llama.cpp's server binary")
    parser.add_argument("--model", help="what the engine at --url calls its model")
    parser.add_argument("--weights", type=Path, help="a folder for vLLM, a GGUF file for llama.cpp")
    options = parser.parse_args()
    if options.url and not options.model:
        parser.error("--url needs --model")
    if not options.url and not options.weights:
        parser.error("give --weights, what the engine is to serve")
    with open_engine(options) as engine:
        code = run_proof("A foreign engine as a rung", [(engine.url, lambda: measure(engine))])
    finish(code)


if __name__ == "__main__":
    main()
