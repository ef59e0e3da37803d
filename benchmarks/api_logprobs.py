"""Log probabilities, seeds and forced bytes of a real server on real weights, in float32.

Each log probability that comes back over HTTP is compared with a plain transformers forward
over the same tokens: alone, with others running, and with the prompt in the prefix
cache. Measures exactness, so it may share the machine.
"""

import json
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx2
import torch

from benchmarks.engine_http import running_server
from benchmarks.engine_session import load
from benchmarks.proof import Line
from benchmarks.workload import load_workload
from failsoft.engine.launch import describe
from failsoft.engine.text.token_text import TokenTexts
from tests.engine.fake_engine import FakeEngine, Script
from tests.engine.http.rig import events_of, running

MODEL = "smollm2-135m-instruct"
TOLERANCE = 1e-4
_NUM_TOP = 5
_TEXTS = (
    "🎉 done 👩‍👩‍👧 and 🏴󠁧󠁢󠁳󠁣󠁴󠁿!",
    "日本語のテキスト、漢字と仮名。",
    "한국어 ไทย ελληνικά 🇫🇷€",
)
"""Played byte by byte: families, flags of tags, scripts of two to four bytes a character."""


class Size(NamedTuple):
    """How much is measured."""

    lengths: tuple[int, ...]
    """Of the prompts, in tokens: one, at block edges, longer than a step."""
    num_load: int
    """Other requests that run meanwhile."""
    num_scored: int
    """Tokens sampled after each prompt."""
    num_seeded: int
    """Prompts that are sampled under a seed."""


WHOLE = Size((1, 2, 15, 16, 17, 33, 128, 129, 300, 513, 700, 900), 20, 8, 6)
SHORT = Size((1, 16, 50), 5, 3, 1)


class Found(NamedTuple):
    """Log probabilities of one answer, and the tokens that they are about."""

    tokens: list[int]
    num_prompt: int
    scores: list[float]
    """Of the last ``len(scores)`` of *tokens*."""
    tops: list[float]
    """The likeliest token's at each of them."""
    num_cached: int


class Caller:
    """Talks to one server.

    Args:
        url: Where it listens.
        tokenizer: The model's, to read token ids out of texts.
        size: How much to ask.
    """

    def __init__(self, url: str, tokenizer: Any, size: Size) -> None:
        self._size = size
        texts = TokenTexts(tokenizer)
        self._id_of = {texts.of(number).text: number for number in range(len(texts_of(tokenizer)))}
        self._client = httpx2.Client(base_url=url, timeout=300, trust_env=False)

    def complete(self, prompt: tuple[int, ...], **fields: Any) -> dict[str, Any]:
        """Return the answer to *prompt*.

        Raises:
            RuntimeError: It is none.
        """
        body = {"prompt": list(prompt), "temperature": 0, "ignore_eos": True, **fields}
        reply = self._client.post("/v1/completions", json=body)
        if reply.status_code != 200:
            raise RuntimeError(reply.text)
        answer: dict[str, Any] = reply.json()
        return answer

    def score(self, prompt: tuple[int, ...], *, echo: bool) -> Found:
        """Return the log probabilities of a few greedy tokens, and of the prompt if echoed."""
        count = self._size.num_scored
        answer = self.complete(prompt, max_tokens=count, logprobs=_NUM_TOP, echo=echo)
        logprobs = answer["choices"][0]["logprobs"]
        said = [self._id_of[token] for token in logprobs["tokens"][-count:]]
        first = 1 if echo else 0
        return Found(
            tokens=[*prompt, *said],
            num_prompt=len(prompt),
            scores=logprobs["token_logprobs"][first:],
            tops=[max(top.values()) for top in logprobs["top_logprobs"][first:]],
            num_cached=answer["usage"]["prompt_tokens_details"]["cached_tokens"],
        )

    @contextmanager
    def load(self) -> Iterator[None]:
        """Keep others running until the block ends."""
        is_over = threading.Event()

        def ask(number: int) -> None:
            rng = random.Random(number)
            while not is_over.is_set():
                prompt = tuple(rng.randrange(1000, 20_000) for _ in range(rng.randrange(5, 60)))
                self.complete(prompt, max_tokens=12, temperature=1.0, logprobs=1)

        count = self._size.num_load
        with ThreadPoolExecutor(count) as pool:
            jobs = [pool.submit(ask, number) for number in range(count)]
            try:
                yield
            finally:
                is_over.set()
            for job in jobs:
                job.result()


def texts_of(tokenizer: Any) -> range:
    """Return the ids of a tokenizer, added tokens included."""
    return range(tokenizer.get_vocab_size(with_added_tokens=True))


def make_prompts(size: Size) -> list[tuple[int, ...]]:
    """Return prompts of real text."""
    text = [token for item in load_workload("documents").items for token in item.prompt_ids]
    rng = random.Random(20261130)
    prompts = []
    for length in size.lengths:
        start = rng.randrange(len(text) - length)
        prompts.append(tuple(text[start : start + length]))
    return prompts


def largest_difference(model: Any, found: list[Found]) -> float:
    """Return the largest difference from plain forwards, over all scores and likeliest tokens."""
    worst = 0.0
    for one in found:
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([one.tokens]), use_cache=False).logits[0]
        table = logits.float().log_softmax(dim=-1)
        first = len(one.tokens) - len(one.scores)
        rows = table[first - 1 : len(one.tokens) - 1]
        own = rows.gather(-1, torch.tensor(one.tokens[first:])[:, None])[:, 0]
        worst = max(worst, float((own - torch.tensor(one.scores)).abs().max()))
        best = rows.amax(dim=-1)
        worst = max(worst, float((best - torch.tensor(one.tops)).abs().max()))
    return worst


def _scores_line(what: str, model: Any, found: list[Found]) -> Line:
    worst = largest_difference(model, found)
    count = sum(len(one.scores) for one in found)
    hits = sum(one.num_cached for one in found)
    return Line(
        must_hold=f"{MODEL}: log probabilities equal a plain forward to {TOLERANCE:g}, {what}",
        figure=f"largest difference {worst:.1e} over {count} tokens, {hits} prompt tokens cached",
        has_passed=worst <= TOLERANCE and (hits > 0 or "cached" not in what),
    )


def measure_scores(size: Size) -> Iterator[Line]:
    """Yield how far log probabilities are from a plain forward's, and whether seeds hold."""
    loaded = load(MODEL, "float32")
    prompts = make_prompts(size)
    beside = f"beside {size.num_load} others"
    with running_server("engine", "serve", "--dtype", "float32") as server:
        caller = Caller(server.url, loaded.tokenizer.backend_tokenizer, size)
        alone = [caller.score(prompt, echo=True) for prompt in prompts]
        yield _scores_line("one request at a time, prompts echoed", loaded.model, alone)
        cached = [caller.score(prompt, echo=False) for prompt in prompts]
        yield _scores_line("prompts cached", loaded.model, cached)
        with caller.load(), ThreadPoolExecutor(len(prompts)) as pool:
            busy = list(pool.map(lambda prompt: caller.score(prompt, echo=True), prompts))
            hit = list(pool.map(lambda prompt: caller.score(prompt, echo=False), prompts))
        yield _scores_line(f"{beside}, prompts echoed", loaded.model, busy)
        yield _scores_line(f"{beside}, prompts cached", loaded.model, hit)
        yield _seeds_line(caller, prompts[-size.num_seeded :], beside)


def _seeds_line(caller: Caller, prompts: list[tuple[int, ...]], beside: str) -> Line:
    def ask(prompt: tuple[int, ...]) -> list[str]:
        answer = caller.complete(prompt, n=4, seed=7, temperature=1.0, max_tokens=16)
        return [choice["text"] for choice in answer["choices"]]

    alone = [ask(prompt) for prompt in prompts]
    again = [ask(prompt) for prompt in prompts]
    with caller.load():
        busy = [ask(prompt) for prompt in prompts]
    same = sum(one == two == three for one, two, three in zip(alone, again, busy, strict=True))
    differing = sum(len(set(texts)) == 4 for texts in alone)
    return Line(
        must_hold="n = 4 under one seed: the same four texts alone, again, and "
        f"{beside}; four different ones",
        figure=f"{same} of {len(prompts)} prompts the same, {differing} with four texts",
        has_passed=same == differing == len(prompts),
    )


def measure_forced_bytes() -> Iterator[Line]:
    """Yield what streams show of characters whose bytes come one token at a time.

    The tokens are forced: a scripted engine stands behind the real server and the model's own
    tokenizer.
    """
    loaded = load(MODEL, "float32")
    served = describe(loaded, max_model_len=loaded.max_model_len)
    tokenizer = loaded.tokenizer.backend_tokenizer
    texts = TokenTexts(tokenizer)
    id_of = {texts.of(number).data: number for number in texts_of(tokenizer)}
    bad = []
    for text in _TEXTS:
        ids = [id_of[bytes([byte])] for byte in text.encode()]
        with running(FakeEngine(_saying(ids), vocab_size=loaded.vocab_size), served) as rig:
            body = {"messages": [{"role": "user", "content": "x"}], "ignore_eos": True}
            reply = rig.post("/v1/chat/completions", json={**body, "stream": True})
        *chunks, _done = events_of(reply.text)
        deltas = [json.loads(chunk)["choices"][0]["delta"].get("content", "") for chunk in chunks]
        if "".join(deltas) != text or any("\ufffd" in delta for delta in deltas):
            bad.append(text)
    yield Line(
        must_hold="characters forced byte by byte never show U+FFFD in a stream",
        figure=f"{len(_TEXTS) - len(bad)} of {len(_TEXTS)} texts whole",
        has_passed=not bad,
    )


def _saying(ids: list[int]) -> Script:
    return lambda _request: ids


def measure(*, is_short: bool) -> Iterator[Line]:
    """Yield every line."""
    yield from measure_scores(SHORT if is_short else WHOLE)
    yield from measure_forced_bytes()
