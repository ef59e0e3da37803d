"""Many at once on a real engine over HTTP: the same texts, nobody starved, nothing left over."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.engine.http.real_rig import RealRig, running_real
from tests.engine.http.rig import MODEL, raw_post, wait_until

LENGTHS = [1 + (number * 67) % 200 for number in range(18)]
"""Prompt tokens of 18 requests, 1..200, in no order."""
NUM_OUTPUT = 24


def prompt(seed: int, length: int) -> list[int]:
    """Token ids that no other seed's prompt begins with."""
    return [3 + (seed * 31 + place * 7) % 300 for place in range(length)]


def total(rig: RealRig, name: str, **labels: str) -> float:
    """The value of a sample of /metrics; 0 when it is not there."""
    for family in text_string_to_metric_families(rig.client.get("/metrics").text):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return float(sample.value)
    return 0.0


@pytest.fixture(scope="module", params=[1600, 190], ids=["roomy", "cramped"])
def crowded(request: pytest.FixtureRequest) -> Iterator[tuple[RealRig, bool]]:
    """An engine with KV blocks for all, and one with blocks for about six."""
    with running_real(num_blocks=request.param, max_running=32) as rig:
        yield rig, request.param < 1000


def test_in_a_crowd_each_gets_the_text_it_gets_alone(crowded: tuple[RealRig, bool]) -> None:
    """Greedy, float32; where blocks are short some are preempted, and nobody notices."""
    rig, is_cramped = crowded

    def ask(number: int, salt: str) -> tuple[Any, Any]:
        reply = rig.complete(
            prompt(number, LENGTHS[number]),
            max_tokens=NUM_OUTPUT,
            ignore_eos=True,
            cache_salt=salt,
        )
        return reply["choices"][0]["text"], reply["usage"]

    alone = [ask(number, "alone") for number in range(len(LENGTHS))]
    with ThreadPoolExecutor(len(LENGTHS)) as pool:
        # Under a salt of its own, or the crowd would be served from the cache.
        together = list(pool.map(ask, range(len(LENGTHS)), ["crowd"] * len(LENGTHS)))

    assert [text for text, _ in together] == [text for text, _ in alone]
    assert all(
        (usage["prompt_tokens"], usage["completion_tokens"]) == (length, NUM_OUTPUT)
        for (_, usage), length in zip(together, LENGTHS, strict=True)
    )
    assert (total(rig, "failsoft_num_preemptions_total") > 0) == is_cramped
    assert wait_until(lambda: total(rig, "failsoft_blocks_used") == 0)


def test_a_prompt_that_was_there_is_not_computed_again(real: RealRig) -> None:
    """Twice the same, then with more behind it: cached tokens, and the text of a cold start."""
    ids = prompt(77, 300)

    def ask(tokens: list[int], salt: str) -> tuple[str, int]:
        reply = real.complete(tokens, max_tokens=8, ignore_eos=True, cache_salt=salt)
        cached = reply["usage"]["prompt_tokens_details"]["cached_tokens"]
        return reply["choices"][0]["text"], cached

    first, again, longer = ask(ids, "a"), ask(ids, "a"), ask([*ids, 5, 6, 7], "a")
    other, cold = ask(ids, "b"), ask([*ids, 5, 6, 7], "c")

    block_size = 4
    full = len(ids) // block_size * block_size
    assert (first[1], other[1], cold[1]) == (0, 0, 0)
    assert again[1] >= full - block_size
    assert longer[1] >= full - block_size
    assert first[0] == again[0] == other[0]
    assert longer[0] == cold[0]


def test_a_caller_that_leaves_during_its_prompt_frees_its_blocks() -> None:
    """Counted as gone in prefill; no token of it was ever sampled."""
    body = {"model": MODEL, "prompt": prompt(1, 500), "max_tokens": 5, "stream": True}
    with running_real(max_step_tokens=2) as rig:
        sock = socket.create_connection(("127.0.0.1", int(rig.url.rpartition(":")[2])))
        sock.sendall(raw_post("/v1/completions", json.dumps(body).encode()))
        assert wait_until(lambda: total(rig, "failsoft_num_requests_running") == 1)
        sock.close()

        assert wait_until(
            lambda: total(rig, "failsoft_requests_aborted_total", stage="prefill") == 1
        )
        assert total(rig, "failsoft_num_requests_running") == 0
        assert total(rig, "failsoft_blocks_used") == 0
        assert total(rig, "failsoft_generation_tokens_total") == 0


def test_a_long_prompt_holds_up_no_stream() -> None:
    """Every step that takes a piece of it also gives each stream under way its token."""
    with running_real(num_blocks=1600, max_step_tokens=16) as rig, ThreadPoolExecutor(9) as pool:
        streams = [
            pool.submit(
                rig.stream, "/v1/completions", prompt=prompt(n, 4), max_tokens=200, ignore_eos=True
            )
            for n in range(8)
        ]
        assert wait_until(lambda: total(rig, "failsoft_num_requests_running") == 8)
        assert wait_until(lambda: rig.engine.step_log.snapshot()[-1].num_decode_tokens == 8)
        begun = rig.engine.stats().num_steps
        long = pool.submit(rig.complete, prompt(99, 400), max_tokens=1)
        long.result()
        pieces = [
            step
            for step in rig.engine.step_log.snapshot()
            if step.step > begun and step.num_prompt_tokens
        ]
        for stream in streams:
            stream.result()

    assert len(pieces) > 40
    assert all(step.num_decode_tokens >= 8 for step in pieces)
    assert all(step.num_prompt_tokens + step.num_decode_tokens <= 16 for step in pieces)


def test_a_flood_of_short_requests_does_not_starve_a_long_one() -> None:
    """It came before them, so it is served before them, though any of them would fit sooner."""
    with running_real(max_running=2) as rig, ThreadPoolExecutor(25) as pool:
        ended: list[str] = []

        def ask(name: str, length: int, max_tokens: int) -> None:
            ids = prompt(len(name) + length, length)
            rig.complete(ids, max_tokens=max_tokens, ignore_eos=True)
            ended.append(name)

        def is_waiting(count: int) -> bool:
            return wait_until(lambda: total(rig, "failsoft_num_requests_waiting") == count)

        jobs = [pool.submit(ask, f"first-{n}", 3 + n, 250) for n in range(2)]
        assert wait_until(lambda: total(rig, "failsoft_num_requests_running") == 2)
        jobs.append(pool.submit(ask, "long", 450, 6))
        assert is_waiting(1)
        jobs += [pool.submit(ask, f"later-{n}", 3 + n % 5, 6) for n in range(20)]
        for job in jobs:
            job.result()

    assert ended.index("long") < len(ended) - 10
