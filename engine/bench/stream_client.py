"""One streaming request to an OpenAI-compatible server, and when its tokens came.

Needs httpx2 and no torch. Stamps are ``time.monotonic()`` seconds.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2

from failsoft.engine.bench.workload import Item
from failsoft.errors import ConfigError

_SHOWN_CHARS = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where requests go."""

    url: str
    """``/v1`` included."""
    model: str
    is_chat: bool | None
    """Chat, completions, or chat for texts and completions for ids."""


_ENDPOINTS = {"auto": None, "chat": True, "completions": False}


def parse_endpoint(name: str) -> bool | None:
    """Return whether *name* means chat; None lets each prompt's kind decide.

    Raises:
        ConfigError: There is no such endpoint.
    """
    if name not in _ENDPOINTS:
        raise ConfigError(key="--endpoint", value=name, allowed=f"one of {', '.join(_ENDPOINTS)}")
    return _ENDPOINTS[name]


def target_of(url: str, *, model: str, is_chat: bool | None, items: Sequence[Item]) -> Target:
    """Return where requests go.

    Raises:
        ConfigError: Chat is asked for, and a prompt is ids.
    """
    if is_chat and any(item.text is None for item in items):
        raise ConfigError(
            key="--endpoint",
            value="chat",
            allowed="auto or completions with this workload: its prompts are token ids",
        )
    return Target(url=url, model=model, is_chat=is_chat)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one request; seconds from its sending."""

    sent_s: float
    ended_s: float
    late_s: float
    """Sent so much later than planned: this client's own fault."""
    error: str | None = None
    """What kind of failure; None when all came."""
    detail: str = ""
    ttft_s: float | None = None
    tpot_s: float | None = None
    """None below two tokens."""
    e2e_s: float | None = None
    """To the last token."""
    num_tokens: int = 0
    is_counted: bool = False
    """Whether the server itself counted the tokens; else they are the pieces that came."""


class _StreamError(Exception):
    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


@dataclass(slots=True)
class _Seen:
    """What came of a stream so far."""

    first_s: float | None = None
    last_s: float | None = None
    num_pieces: int = 0
    num_counted: int | None = None
    is_done: bool = False


def body_of(target: Target, item: Item) -> tuple[str, dict[str, Any]]:
    """Return the route and the body that ask for *item*."""
    body: dict[str, Any] = {
        "model": target.model,
        "max_tokens": item.output_len,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if item.is_exact:
        body["ignore_eos"] = True
    is_chat = bool(item.text) if target.is_chat is None else target.is_chat
    if is_chat:
        message = {"role": "user", "content": item.text}
        return "chat/completions", {**body, "messages": [message]}
    prompt: Any = item.text if item.text is not None else list(item.prompt_ids)
    return "completions", {**body, "prompt": prompt}


async def ask(
    client: httpx2.AsyncClient, target: Target, item: Item, *, planned_s: float
) -> Outcome:
    """Send one request and read its stream to the end; failures are outcomes too."""
    route, body = body_of(target, item)
    sent_s = time.monotonic()
    seen = _Seen()
    error, detail = None, ""
    try:
        async with client.stream("POST", f"{target.url}/{route}", json=body) as response:
            await _check(response)
            async for event in _events(response):
                _take(seen, event)
        if not seen.is_done:
            raise _StreamError("cut off", "the stream ended without [DONE]")
        if seen.first_s is None:
            raise _StreamError("no text", "the stream held no text")
    except _StreamError as exc:
        error, detail = exc.kind, str(exc)
    except asyncio.CancelledError:
        error, detail = "unfinished", "it ran when the time was up"
    except httpx2.TimeoutException as exc:
        error, detail = "timeout", type(exc).__name__
    except httpx2.ConnectError as exc:
        error, detail = "no connection", str(exc)
    except httpx2.HTTPError as exc:
        error, detail = "broken connection", f"{type(exc).__name__}: {exc}"
    return _outcome(seen, sent_s=sent_s, planned_s=planned_s, error=error, detail=detail)


def _outcome(
    seen: _Seen, *, sent_s: float, planned_s: float, error: str | None, detail: str
) -> Outcome:
    num_tokens = seen.num_pieces if seen.num_counted is None else seen.num_counted
    ttft_s = tpot_s = e2e_s = None
    if error is None and seen.first_s is not None and seen.last_s is not None:
        ttft_s, e2e_s = seen.first_s - sent_s, seen.last_s - sent_s
        if num_tokens >= 2:
            tpot_s = (seen.last_s - seen.first_s) / (num_tokens - 1)
    return Outcome(
        sent_s=sent_s,
        ended_s=time.monotonic(),
        late_s=max(0.0, sent_s - planned_s),
        error=error,
        detail=detail[:_SHOWN_CHARS],
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        e2e_s=e2e_s,
        num_tokens=num_tokens,
        is_counted=seen.num_counted is not None,
    )


async def _check(response: httpx2.Response) -> None:
    if response.status_code == 200:
        return
    await response.aread()
    try:
        message = str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = response.reason_phrase
    raise _StreamError(f"HTTP {response.status_code}", message)


async def _events(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield the data of each event; only line feeds end a line, texts may hold the others."""
    rest = b""
    async for chunk in response.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()


def _take(seen: _Seen, event: bytes) -> None:
    """Take one event in.

    Raises:
        _StreamError: It is an error, or nothing that OpenAI would send.
    """
    if event == b"[DONE]":
        seen.is_done = True
        return
    try:
        chunk = json.loads(event)
        fault = chunk.get("error")
        usage = chunk.get("usage") or {}
        has_text = any(_has_text(choice) for choice in chunk.get("choices") or ())
    except (ValueError, AttributeError, TypeError) as exc:
        raise _StreamError("no OpenAI stream", event[:40].decode("utf-8", "replace")) from exc
    if fault:
        message = fault.get("message") if isinstance(fault, Mapping) else fault
        raise _StreamError("error event", str(message))
    if has_text:
        seen.last_s = time.monotonic()
        seen.first_s = seen.first_s or seen.last_s
        seen.num_pieces += 1
    if isinstance(count := usage.get("completion_tokens"), int):
        seen.num_counted = count


def _has_text(choice: Mapping[str, Any]) -> bool:
    """Whether a choice carries something generated; a chunk that names the role alone does not."""
    delta = choice.get("delta")
    if delta is None:
        return bool(choice.get("text"))
    keys = ("content", "reasoning_content", "reasoning", "tool_calls", "refusal")
    return any(delta.get(key) for key in keys)
