"""A real server process on real weights: bad input, and neighbours that must not notice."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx2
import psutil
from openai import OpenAI

from benchmarks.proof import Line

_MODEL = "smollm2-135m-instruct"


class Server(NamedTuple):
    """A running ``failsoft up``, or ``failsoft engine serve``."""

    url: str
    process: "subprocess.Popen[bytes]"
    ready_s: float
    """Seconds from the command to the first ready answer."""


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def wait_ready(url: str, process: "subprocess.Popen[bytes]", limit_s: float) -> float:
    """Return the seconds until ``/health/ready`` says 200.

    Raises:
        RuntimeError: The process ended, or *limit_s* passed.
    """
    started_s = time.monotonic()
    while time.monotonic() - started_s < limit_s:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        try:
            if httpx2.get(f"{url}/health/ready", timeout=2).status_code == 200:
                return time.monotonic() - started_s
        except httpx2.HTTPError:
            pass
        time.sleep(0.1)
    raise RuntimeError(f"not ready after {limit_s} s")


@contextmanager
def running_server(*command: str, folder: Path | None = None) -> Iterator[Server]:
    """Yield ``failsoft`` *command* on a free port; it is ended with SIGTERM.

    Args:
        command: Words after ``failsoft``.
        folder: Where it runs, and so whose ``failsoft.toml`` it reads; None is here.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [sys.executable, "-m", "failsoft", *command, "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=dict(os.environ),
        cwd=folder,
    )
    try:
        yield Server(url, process, wait_ready(url, process, 600))
    finally:
        process.terminate()
        process.wait(60)


def ask_capital(url: str, model: str = _MODEL) -> str:
    """Return the official client's answer to the capital question, temperature 0."""
    client = OpenAI(base_url=f"{url}/v1", api_key="unused")
    reply = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0,
    )
    return reply.choices[0].message.content or ""


def measure_idle(server: Server) -> Iterator[Line]:
    """Yield the processor time of a server that has answered and now has nothing to do."""
    ask_capital(server.url)
    process = psutil.Process(server.process.pid)
    time.sleep(1)
    before = sum(process.cpu_times()[:2])
    time.sleep(10)
    share = (sum(process.cpu_times()[:2]) - before) / 10
    yield Line(
        must_hold="an idle engine burns no CPU (below 1 % of a core over 10 s)",
        figure=f"{share:.2%} of a core",
        has_passed=share < 0.01,
    )


def _message(content: object) -> list[dict[str, object]]:
    return [{"role": "user", "content": content}]


_BAD: list[tuple[str, object, str | None]] = [
    ("completions", {"prompt": ""}, "prompt"),
    ("completions", {"prompt": []}, "prompt"),
    ("completions", {"prompt": [[]]}, "prompt"),
    ("completions", {"prompt": [10**6]}, "prompt"),
    ("completions", {"prompt": [-1]}, "prompt"),
    ("completions", {"prompt": {"a": 1}}, "prompt"),
    ("completions", {"prompt": "a", "max_tokens": 0}, "max_tokens"),
    ("completions", {"prompt": "a", "max_tokens": 10**6}, "max_tokens"),
    ("completions", {"prompt": "a", "n": 99}, "n"),
    ("completions", {"prompt": "a", "logit_bias": {"5": 1000}}, "logit_bias"),
    ("chat/completions", {"messages": []}, "messages"),
    ("chat/completions", {}, "messages"),
    ("chat/completions", {"messages": _message(None)}, "messages"),
    ("chat/completions", {"messages": _message("a"), "temperature": 2.5}, "temperature"),
    ("chat/completions", {"messages": _message("a"), "temperature": "hot"}, "temperature"),
    ("chat/completions", {"messages": _message("a"), "temperature": True}, "temperature"),
    ("chat/completions", {"messages": _message("a"), "top_p": 0}, "top_p"),
    ("chat/completions", {"messages": _message("a"), "stop": [""]}, "stop"),
    ("chat/completions", {"messages": _message("a"), "stream": "yes"}, "stream"),
    ("chat/completions", {"messages": _message("a"), "tools": [{"type": "function"}]}, "tools"),
    ("chat/completions", b'{"messages": [], "temperature": NaN}', None),
    ("chat/completions", b"{not json", None),
    ("chat/completions", b'"' + b"x" * 1_200_000 + b'"', None),
    ("chat/completions", b"[" * 50_000, None),
    ("chat/completions", b'{"messages": [{"role": "user", "content": "\\ud800"}]}', None),
]
"""Route, body, and the field that the error must name (None: any)."""


def measure_bad_input(server: Server, *, is_short: bool) -> Iterator[Line]:
    """Yield whether every bad body gets a 400 that names its field, neighbours unharmed."""
    client = OpenAI(base_url=f"{server.url}/v1", api_key="unused")

    def stream() -> str:
        chunks = client.chat.completions.create(
            model=_MODEL,
            messages=[{"role": "user", "content": "Tell me about rivers."}],
            temperature=0,
            max_tokens=48 if is_short else 120,
            stream=True,
        )
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

    stream()  # the next one finds its prompt in the prefix cache, and so does the one beside
    alone = stream()
    beside: list[str] = []
    neighbour = threading.Thread(target=lambda: beside.append(stream()))
    neighbour.start()
    wrong = []
    for route, body, field in _BAD:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        reply = httpx2.post(f"{server.url}/v1/{route}", content=content, headers=headers)
        error = reply.json().get("error", {}) if reply.status_code >= 400 else {}
        named = field is None or str(error.get("param") or "").startswith(field)
        if reply.status_code != 400 or not error.get("message") or not named:
            wrong.append((reply.status_code, str(body)[:40], error.get("param")))
    neighbour.join()
    ready = httpx2.get(f"{server.url}/health/ready").status_code
    yield Line(
        must_hold="bad input gets a 400 in OpenAI's shape that names the field, "
        "neighbours undisturbed",
        figure=f"{len(_BAD) - len(wrong)} of {len(_BAD)} right {wrong or ''}, neighbour's text "
        f"{'unchanged' if beside == [alone] else 'CHANGED'}, ready {ready}",
        has_passed=not wrong and beside == [alone] and ready == 200,
    )
