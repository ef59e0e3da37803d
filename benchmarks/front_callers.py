"""Callers of a front: each asks one stream after another and writes down what it met.

They speak plain HTTP, so that what a client library hides (retries, waiting) counts.
Stamps are ``time.monotonic()`` seconds.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

RUNG_HEADER = "x-failsoft-rung"
VERSION_HEADER = "x-failsoft-version"
AGE_HEADER = "x-failsoft-age-s"
WAIT_S = 120.0


@dataclass(slots=True)
class Seen:
    """What one call met."""

    started_s: float
    asked: str = ""
    """What the user said."""
    status: int | None = None
    """None when no reply's head came."""
    rung: str | None = None
    version: str | None = None
    age_s: float | None = None
    first_s: float | None = None
    """When the first text came."""
    ended_s: float | None = None
    text: str = ""
    is_whole: bool = False
    """Whether a finish reason and ``[DONE]`` came."""
    error: Mapping[str, Any] | None = None
    """The error event or body."""
    usage: Mapping[str, Any] | None = None
    finish_reason: str | None = None

    @property
    def has_stopped(self) -> bool:
        """Whether the reply is whole and ended by itself: what a cache keeps."""
        return self.is_whole and self.finish_reason == "stop" and bool(self.text)

    @property
    def failed_before_text(self) -> bool:
        """Whether the caller got nothing at all."""
        return self.first_s is None


def ask(
    client: httpx2.Client,
    url: str,
    content: str,
    *,
    max_tokens: int,
    model: str = "chat",
    headers: Mapping[str, str] | None = None,
    temperature: float = 0.0,
) -> Seen:
    """Stream one chat and return what came; never raises for what the front does.

    Args:
        client: Its connection is used.
        url: The API, ``/v1`` included.
        content: What the user says.
        max_tokens: Of the reply.
        model: A ladder.
        headers: More of the request's.
        temperature: Of the sampling.
    """
    seen = Seen(time.monotonic(), content)
    body = {
        "model": model,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": max_tokens,
        "temperature": temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    try:
        with client.stream(
            "POST", f"{url}/chat/completions", json=body, headers=dict(headers or {})
        ) as reply:
            _read(reply, seen)
    except httpx2.HTTPError as exc:
        seen.error = {"transport": type(exc).__name__}
    seen.ended_s = time.monotonic()
    return seen


def _read(reply: httpx2.Response, seen: Seen) -> None:
    seen.status = reply.status_code
    seen.rung = reply.headers.get(RUNG_HEADER)
    seen.version = reply.headers.get(VERSION_HEADER)
    age = reply.headers.get(AGE_HEADER)
    seen.age_s = float(age) if age is not None else None
    if reply.status_code != 200:
        seen.error = json.loads(reply.read() or b"{}").get("error", {})
        return
    for line in reply.iter_lines():
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            seen.is_whole = seen.finish_reason is not None
            continue
        chunk = json.loads(data)
        if "error" in chunk:
            seen.error = chunk["error"]
            continue
        seen.usage = chunk.get("usage") or seen.usage
        for choice in chunk.get("choices", ()):
            text = (choice.get("delta") or {}).get("content") or ""
            if text and seen.first_s is None:
                seen.first_s = time.monotonic()
            seen.text += text
            seen.finish_reason = choice.get("finish_reason") or seen.finish_reason


@dataclass(slots=True)
class Crowd:
    """Callers at work; `seen` grows as their calls end."""

    seen: list[Seen] = field(default_factory=list)

    def after(self, stamp_s: float) -> list[Seen]:
        """Return the calls that ended after *stamp_s*."""
        return [call for call in tuple(self.seen) if (call.ended_s or 0) > stamp_s]


@contextmanager
def crowd(
    url: str,
    *,
    num_callers: int = 4,
    max_tokens: int = 16,
    headers: Mapping[str, str] | None = None,
    words: Callable[[int], str] = lambda number: f"Say one thing about the number {number}.",
) -> Iterator[Crowd]:
    """Let callers ask until left; their last calls are waited for.

    Args:
        url: The API, ``/v1`` included.
        num_callers: Each on a thread and a connection of its own.
        max_tokens: Of each reply.
        headers: More of each request's.
        words: Returns what the call of that number asks; by default always something new.
    """
    together = Crowd()
    is_over = threading.Event()
    number = iter(range(10**9))

    def call_on() -> None:
        with httpx2.Client(timeout=WAIT_S, trust_env=False) as client:
            while not is_over.is_set():
                content = words(next(number))
                seen = ask(client, url, content, max_tokens=max_tokens, headers=headers)
                together.seen.append(seen)
                if seen.error:
                    time.sleep(0.05)  # an honest caller does not hammer a front that says no

    threads = [threading.Thread(target=call_on) for _ in range(num_callers)]
    for thread in threads:
        thread.start()
    try:
        yield together
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
