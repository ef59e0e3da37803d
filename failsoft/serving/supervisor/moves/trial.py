"""What an engine must show before it takes a slot: it answers, and it is what it should be.

Each function asks the running process itself, over its own URL; what it says of itself in its
file counts for nothing here.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from failsoft.config.http import VERSION_HEADER
from failsoft.fallback.discovery import RunningEngine
from failsoft.serving.supervisor.ask import HttpReply, fetch

WARM_UP_WORDS = (1, 24, 160)
"""Lengths of the prompts that come first: kernels and buffers are made for more than one."""
_WARM_UP_TOKENS = 4
_WORDS_PER_TOKEN_FLOOR = 4
"""A prompt has at most this part of the tokens that the engine takes."""
SMOKE_PROMPTS = ("Say hello.", "What is the capital of France?", "Count from one to five.")
_SMOKE_TOKENS = 16


class TrialError(Exception):
    """The engine did not show what it must; the message says in what, as a clause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeReply:
    """One reply, without its words."""

    num_chars: int
    finish_reason: str
    version_digest: str
    """What the head of the reply said."""


async def warm_up(engine: RunningEngine, *, answer_s: float) -> None:
    """Have *engine* answer prompts of differing lengths; what it says does not matter.

    Raises:
        TrialError: It does not answer one.
    """
    limit = (engine.max_model_len or max(WARM_UP_WORDS) * 8) // _WORDS_PER_TOKEN_FLOOR
    prompts = [" ".join(["word"] * max(1, min(words, limit))) for words in WARM_UP_WORDS]
    await _chat_all(engine, prompts, max_tokens=_WARM_UP_TOKENS, answer_s=answer_s)


async def reported_digest(engine: RunningEngine, *, answer_s: float) -> str:
    """Return the version digest that the running process reports.

    Raises:
        TrialError: It reports none.
    """
    reply = await _ask(engine, "/models", None, answer_s)
    try:
        digest = reply.document()["data"][0]["version_digest"]
    except (ValueError, LookupError, TypeError):
        digest = None
    if not isinstance(digest, str):
        raise TrialError("it does not report which version it runs")
    return digest


def check_digest(reported: str, expected: str) -> None:
    """Compare what runs with what was checked.

    Raises:
        TrialError: They differ.
    """
    if reported != expected:
        raise TrialError(f"it runs version {reported[:12]}…, not the {expected[:12]}… checked")


async def smoke(engine: RunningEngine, *, digest: str, answer_s: float) -> list[SmokeReply]:
    """Have *engine* answer a few chats, greedily; return what its replies were like.

    Args:
        engine: The running process.
        digest: What the head of each reply must name.
        answer_s: Seconds for each reply.

    Raises:
        TrialError: One has no text, no end, or another version's name.
    """
    replies = await _chat_all(engine, SMOKE_PROMPTS, max_tokens=_SMOKE_TOKENS, answer_s=answer_s)
    return [_judge(reply, digest) for reply in replies]


def _judge(reply: HttpReply, digest: str) -> SmokeReply:
    told = reply.headers.get(VERSION_HEADER.lower(), "")
    check_digest(told, digest)
    try:
        choice = reply.document()["choices"][0]
        text, finish = choice["message"]["content"], choice["finish_reason"]
    except (ValueError, LookupError, TypeError):
        raise TrialError("its reply to a smoke prompt cannot be read") from None
    if not isinstance(text, str) or not text.strip():
        raise TrialError("its reply to a smoke prompt is empty")
    if finish not in ("stop", "length"):
        raise TrialError(f"its reply to a smoke prompt ends for no reason ({finish!r})")
    return SmokeReply(num_chars=len(text), finish_reason=finish, version_digest=told)


def as_proof(replies: list[SmokeReply]) -> list[dict[str, object]]:
    """Return *replies* as JSON values."""
    return [asdict(reply) for reply in replies]


async def _chat_all(
    engine: RunningEngine, prompts: Sequence[str], *, max_tokens: int, answer_s: float
) -> list[HttpReply]:
    """Ask all of *prompts* at once, as callers do; return the replies in their order.

    Raises:
        TrialError: It does not answer one.
    """
    try:
        async with asyncio.TaskGroup() as group:
            asked = [
                group.create_task(_chat(engine, prompt, max_tokens=max_tokens, answer_s=answer_s))
                for prompt in prompts
            ]
    except* TrialError as several:
        raise several.exceptions[0] from None
    return [task.result() for task in asked]


async def _chat(
    engine: RunningEngine, prompt: str, *, max_tokens: int, answer_s: float
) -> HttpReply:
    body = {
        "model": engine.version,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
    }
    return await _ask(engine, "/chat/completions", body, answer_s)


async def _ask(
    engine: RunningEngine, path: str, body: Mapping[str, Any] | None, answer_s: float
) -> HttpReply:
    url = f"{engine.url}{path}"
    try:
        reply = await fetch(url, token=engine.token, body=body, timeout_s=answer_s)
    except TimeoutError:
        raise TrialError(f"it did not answer within {answer_s:g} s") from None
    except (OSError, ValueError) as exc:
        raise TrialError(f"it does not answer: {exc}") from exc
    if reply.status != 200:
        raise TrialError(f"it answers with status {reply.status}")
    return reply
