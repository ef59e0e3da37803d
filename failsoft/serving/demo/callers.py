"""Callers of the demo: each asks one short question after another over the real HTTP API.

Half of the questions come again and again, so that the reply cache has something to give;
the others are new each time. Knows nothing of processes. Units: seconds.
"""

import json
import random
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import httpx2

from failsoft.config.http import DEADLINE_HEADER
from failsoft.serving.demo.score import CallEnd, CallResult, Score

MAX_TOKENS = 12
DEADLINE_S = 20.0
RUNG_HEADER = "x-failsoft-rung"

_REPEATED = (
    "What is the capital of France?",
    "Name a colour.",
    "How many legs has a spider?",
    "What do bees make?",
    "Which planet do we live on?",
    "What is two plus three?",
)
_PAUSE_S = 0.2
"""After a failed call: a caller who hammers measures only itself."""


def prompts(seed: int) -> Iterator[str]:
    """Yield one caller's questions for ever."""
    chance = random.Random(seed)  # noqa: S311 - chance, not a secret
    number = 0
    while True:
        number += 1
        is_repeated = chance.random() < 0.5
        yield chance.choice(_REPEATED) if is_repeated else f"Say a word with {seed}-{number} in it."


class Callers:
    """Several callers on threads of their own; use it as a context manager.

    Args:
        url: The API's base URL, ``/v1`` included.
        ladder: Which ladder they ask.
        num: How many there are, at least 1.
        score: Told of each call.
    """

    def __init__(self, url: str, *, ladder: str, num: int, score: Score) -> None:
        self._url = f"{url}/chat/completions"
        self._ladder = ladder
        self._score = score
        self._stopping = threading.Event()
        self._client = httpx2.Client(
            timeout=httpx2.Timeout(DEADLINE_S + 5, connect=5), trust_env=False
        )
        self._threads = [
            threading.Thread(target=self._run, args=(seed,), name=f"caller-{seed}", daemon=True)
            for seed in range(num)
        ]

    def __enter__(self) -> Self:
        """Start calling."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop; calls under way may end, but are waited for a moment only."""
        self._stopping.set()
        deadline_s = time.monotonic() + 2
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def _run(self, seed: int) -> None:
        for prompt in prompts(seed):
            if self._stopping.is_set():
                return
            result = self._ask(prompt)
            if self._stopping.is_set():
                return  # what ended now may have ended because everything does
            self._score.add(result)
            if result.end is CallEnd.FAILED:
                self._stopping.wait(_PAUSE_S)

    def _ask(self, prompt: str) -> CallResult:
        body = {
            "model": self._ladder,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": MAX_TOKENS,
            "temperature": 0,
            "stream": True,
        }
        call = _Call()
        try:
            headers = {DEADLINE_HEADER: str(int(DEADLINE_S * 1000))}
            with self._client.stream("POST", self._url, json=body, headers=headers) as response:
                call.rung = response.headers.get(RUNG_HEADER)
                if not response.is_success:
                    response.read()
                    return call.broken(f"HTTP {response.status_code} {_code_of(response.text)}")
                for line in response.iter_lines():
                    if line == "data: [DONE]":
                        return call.answered()
                    if line.startswith("data:") and (why := call.take(json.loads(line[5:]))):
                        return call.broken(why)
        except httpx2.HTTPError as exc:
            return call.broken(type(exc).__name__)
        except ValueError:
            return call.broken("the answer is no JSON")
        return call.broken("the stream ended in the middle")


class _Call:
    """One call under way."""

    def __init__(self) -> None:
        self.rung: str | None = None
        self._begun_s = time.monotonic()
        self._first_token_s: float | None = None

    def take(self, chunk: dict[str, Any]) -> str | None:
        """Take one chunk in; return why the stream breaks off, if it does."""
        if error := chunk.get("error"):
            return str(error.get("code") or error.get("type") or "error")
        for choice in chunk.get("choices", ()):
            if choice.get("delta", {}).get("content") and self._first_token_s is None:
                self._first_token_s = time.monotonic() - self._begun_s
        return None

    def answered(self) -> CallResult:
        """Return the result of a whole reply."""
        return self._result(CallEnd.ANSWERED, None)

    def broken(self, why: str) -> CallResult:
        """Return the result of a call that got nothing, or was cut in its text."""
        end = CallEnd.FAILED if self._first_token_s is None else CallEnd.CUT
        return self._result(end, why)

    def _result(self, end: CallEnd, why: str | None) -> CallResult:
        return CallResult(
            end=end,
            rung=self.rung,
            first_token_s=self._first_token_s,
            ended_s=time.monotonic(),
            why=why,
        )


def _code_of(text: str) -> str:
    try:
        return str(json.loads(text)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return ""
