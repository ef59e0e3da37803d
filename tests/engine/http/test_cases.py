"""What a shared batch may not change: many callers at once, little room, cached prefixes."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engine.http.real_rig import RealRig, running_real

NUM_TOKENS = 16


def make_prompts(count: int, longest: int) -> list[list[int]]:
    """Prompts of 1 to *longest* tokens."""
    rng = random.Random(5)
    lengths = [1, 2, 3, 4, 5, longest, *(rng.randrange(1, longest) for _ in range(count - 6))]
    return [[rng.randrange(3, 320) for _ in range(length)] for length in lengths]


PROMPTS = make_prompts(32, longest=100)


def ask(rig: RealRig, prompt: list[int]) -> str:
    """Return the greedy text; its usage must be exact."""
    answer = rig.complete(prompt, max_tokens=NUM_TOKENS, ignore_eos=True)
    usage = answer["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (len(prompt), NUM_TOKENS)
    text: str = answer["choices"][0]["text"]
    return text


@pytest.fixture(scope="module")
def alone(real: RealRig) -> list[str]:
    """What each prompt gets when nothing else runs."""
    return [ask(real, prompt) for prompt in PROMPTS]


@pytest.mark.parametrize("num_blocks", [160, 44], ids=["roomy", "room for few"])
def test_many_at_once_get_what_each_gets_alone(alone: list[str], num_blocks: int) -> None:
    """32 prompts of mixed length; where few fit some are preempted, and none fails."""
    with running_real(num_blocks=num_blocks, prefix_cache=False, max_running=32) as rig:
        with ThreadPoolExecutor(32) as pool:
            together = list(pool.map(lambda prompt: ask(rig, prompt), PROMPTS))
        stats = rig.engine.stats()

    assert stats.num_blocks_used == 0
    assert num_blocks == 160 or stats.preemptions_total > 0
    assert together == alone


def test_a_cached_prefix_changes_the_time_and_not_the_text() -> None:
    """Again and with a suffix: all full blocks but the last are hits; another salt has none."""
    prompt = [3 + n * 7 % 300 for n in range(120)]
    longer = [*prompt, 9, 8, 7]
    with running_real(prefix_cache=False) as cold:
        expected = [ask(cold, prompt), ask(cold, prompt), ask(cold, longer)]
    with running_real() as rig:
        warm = [ask(rig, prompt), ask(rig, prompt), ask(rig, longer)]
        cached = [
            rig.complete(sent, max_tokens=1, cache_salt=salt)["usage"]["prompt_tokens_details"]
            for sent, salt in ((prompt, ""), (longer, ""), (prompt, "another"))
        ]

    assert warm == expected
    assert [one["cached_tokens"] for one in cached] == [116, 120, 0]
