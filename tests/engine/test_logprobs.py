"""Log probabilities: those of a plain forward, whatever the engine does meanwhile."""

import random
from typing import Any

import pytest
import torch

from failsoft.config.engine import EngineConfig
from failsoft.engine.kv_block import BlockPool
from failsoft.engine.logprobs import LEAST, Wanted, score
from failsoft.engine.prepare import PreparedModel, prepare
from failsoft.engine.request import GenerationRequest, SamplingParams, TokenLogprobs
from failsoft.engine.scheduler import MAX_SCORED_TOKENS, Scheduler
from tests.engine.architectures import SERVED, VOCAB, make_model
from tests.engine.builders import Collector, make_loop, run_to_end

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def model() -> Any:
    return make_model("llama", SERVED["llama"])


@pytest.fixture(scope="module")
def prepared(model: Any) -> PreparedModel:
    config = EngineConfig(block_size=4, num_kv_blocks=80, max_step_tokens=16)
    return prepare(model, name="llama", vocab_size=VOCAB, max_model_len=512, config=config)


@pytest.fixture(scope="module")
def plain() -> Any:
    """The same weights, untouched by the engine."""
    return make_model("llama", SERVED["llama"])


def expected(plain: Any, tokens: list[int]) -> torch.Tensor:
    """Log-softmax of the plain forward, ``(num_tokens, VOCAB)``."""
    with torch.inference_mode():
        logits: torch.Tensor = plain(torch.tensor([tokens])).logits[0]
    return logits.float().log_softmax(dim=-1)


def scheduler_for(
    num_blocks: int, max_step_tokens: int = 16, *, prefix_cache: bool = True
) -> Scheduler:
    return Scheduler(
        pool=BlockPool(num_blocks=num_blocks, block_size=4),
        max_running=8,
        max_step_tokens=max_step_tokens,
        max_model_len=512,
        aging_s=10.0,
        is_prefix_cache_on=prefix_cache,
        version_digest="v",
    )


def request(name: str, prompt: list[int], **settings: Any) -> GenerationRequest:
    params = {"max_tokens": 8, "temperature": 0.0, "ignore_eos": True, **settings}
    return GenerationRequest(
        request_id=name,
        prompt_ids=tuple(prompt),
        sampling=SamplingParams(**params),
        arrival_s=float(len(name)),
    )


def check_tokens(
    found: list[TokenLogprobs | None], tokens: list[int], wanted: torch.Tensor, num_top: int
) -> None:
    """Compare what was found for *tokens* with rows of the plain forward."""
    assert len(found) == len(tokens)
    for one, token, row in zip(found, tokens, wanted, strict=True):
        assert one is not None
        assert one.token_id == token
        assert abs(one.logprob - float(row[token])) < TOLERANCE
        assert [value for _, value in one.top] == pytest.approx(
            row.topk(num_top).values.tolist(), abs=TOLERANCE
        )
        assert one.rank == int((row > row[token] + TOLERANCE).sum()) + 1


def check(events: Collector, name: str, prompt: list[int], plain: Any, num_top: int) -> None:
    """Compare all that was told of *name* with the plain forward."""
    output = events.tokens[name]
    wanted = expected(plain, [*prompt, *output])
    check_tokens(events.logprobs[name], output, wanted[len(prompt) - 1 :][: len(output)], num_top)
    if len(prompt) > 1:
        found = list(events.prompt_logprobs[name])
        check_tokens([*found], prompt[1:], wanted[: len(prompt) - 1], num_top)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("num_blocks", [16, 80], ids=["preempting", "roomy"])
def test_they_equal_a_plain_forward(prepared: PreparedModel, plain: Any, num_blocks: int) -> None:
    """Chunks of 16, eight at once, shared prefixes and, in a small pool, preemptions.

    The shared prefix is cached by the time the last ones come: a hit has no logits.
    """
    rng = random.Random(3)
    shared = [rng.randrange(3, VOCAB) for _ in range(24)]
    prompts = {f"r{n}": [rng.randrange(3, VOCAB) for _ in range(n)] for n in (1, 2, 5, 17, 40)}
    prompts |= {f"s{n}": [*shared, *range(3, 3 + n)] for n in (1, 6)}
    scheduler = scheduler_for(num_blocks)
    loop, events = make_loop(scheduler, prepared.runner), Collector()
    loop.add(request("first", shared, temperature=1.0, seed=1), events)
    run_to_end(loop)
    for name, prompt in prompts.items():
        noisy = {"temperature": 1.0, "seed": 5, "repetition_penalty": 1.3}
        settings = noisy if name in ("r17", "s6") else {}
        wanted = {"max_tokens": 20, "logprobs": 3, "prompt_logprobs": 3}
        loop.add(request(name, prompt, **wanted, **settings), events)

    run_to_end(loop)

    assert num_blocks == 80 or scheduler.preemptions_total > 0
    for name, prompt in prompts.items():
        check(events, name, prompt, plain, num_top=3)
    assert "first" not in events.prompt_logprobs
    assert events.logprobs["first"] == [None] * 8


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("prefix_cache", [True, False], ids=["cached", "computed again"])
def test_a_preemption_in_the_middle_of_a_prompt_scores_no_token_twice(
    prepared: PreparedModel, plain: Any, prefix_cache: bool
) -> None:
    """What is told is told: the rest is scored from where it was."""
    prompt = list(range(3, 43))
    scheduler = scheduler_for(80, prefix_cache=prefix_cache)
    loop, events = make_loop(scheduler, prepared.runner), Collector()
    loop.add(request("a", prompt, logprobs=2, prompt_logprobs=2), events)
    loop.step()
    loop.step()
    (sequence,) = scheduler.running

    scheduler._preempt(sequence)
    run_to_end(loop)

    assert events.finished["a"].record.num_preemptions == 1
    check(events, "a", prompt, plain, num_top=2)


@pytest.mark.filterwarnings("ignore")
def test_a_scored_prompt_reads_no_prefix_and_leaves_one(
    prepared: PreparedModel, plain: Any
) -> None:
    """Cached KV has no logits; what the scored prompt computes serves the next."""
    prompt = list(range(3, 40))
    loop, events = make_loop(scheduler_for(80), prepared.runner), Collector()

    for name, settings in (("a", {}), ("bb", {"prompt_logprobs": 0, "logprobs": 0}), ("ccc", {})):
        loop.add(request(name, prompt, **settings), events)
        run_to_end(loop)

    cached = {name: events.finished[name].record.num_cached_tokens for name in ("a", "bb", "ccc")}
    assert cached == {"a": 0, "bb": 0, "ccc": 36}
    check(events, "bb", prompt, plain, num_top=0)
    assert events.tokens["a"] == events.tokens["bb"] == events.tokens["ccc"]


@pytest.mark.filterwarnings("ignore")
def test_one_step_scores_a_bounded_number_of_tokens(prepared: PreparedModel, plain: Any) -> None:
    """Each takes a row of logits; two long prompts share the room, and a third still decodes."""
    prompts = {name: [3 + (n * k) % 90 for n in range(150)] for k, name in enumerate("ab", 7)}
    scheduler = scheduler_for(80, max_step_tokens=400)
    loop, events = make_loop(scheduler, prepared.runner), Collector()
    seen: list[int] = []
    runner_run = prepared.runner.run

    class Watching:
        def run(self, plan: Any) -> Any:
            seen.append(sum(row.num_scored for row in plan.rows))
            return runner_run(plan)

    loop = make_loop(scheduler, Watching())
    loop.add(request("plain", [5, 6, 7], max_tokens=3), events)
    for name, prompt in prompts.items():
        loop.add(request(name, prompt, max_tokens=1, prompt_logprobs=1, logprobs=1), events)

    run_to_end(loop)

    assert max(seen) == MAX_SCORED_TOKENS
    assert sum(seen) == 2 * 149
    for name, prompt in prompts.items():
        check(events, name, prompt, plain, num_top=1)


@pytest.mark.filterwarnings("ignore")
def test_a_prompt_alone_is_scored_without_a_token(prepared: PreparedModel, plain: Any) -> None:
    """max_tokens 0: nothing is sampled, nothing is counted as output."""
    prompt = list(range(3, 30))
    loop, events = make_loop(scheduler_for(80), prepared.runner), Collector()

    loop.add(request("a", prompt, max_tokens=0, prompt_logprobs=2), events)
    run_to_end(loop)

    assert "a" not in events.tokens
    assert events.finished["a"].record.num_output_tokens == 0
    assert events.finished["a"].record.finish_reason.value == "length"
    check_tokens([*events.prompt_logprobs["a"]], prompt[1:], expected(plain, prompt)[:-1], 2)


def test_a_banned_token_has_the_least_log_probability() -> None:
    """JSON has no minus infinity."""
    logits = torch.tensor([[0.0, -float("inf"), 1.0]])

    (found,) = score(logits, [Wanted(0, 1, 3)])

    assert found is not None
    assert (found.logprob, found.rank) == (LEAST, 3)
    assert found.top[-1] == (1, LEAST)


def test_each_row_names_as_many_tokens_as_it_wants() -> None:
    """One batched pass over rows of different wishes, across the slices it is cut into."""
    logits = torch.randn(70, 50, generator=torch.Generator().manual_seed(1)).bfloat16()
    wanted = [Wanted(n, n % 50, n % 6) for n in range(70)]

    found = score(logits, wanted)

    table = logits.float().log_softmax(dim=-1)
    for one, want in zip(found, wanted, strict=True):
        assert one is not None
        assert len(one.top) == want.num_top
        assert one.logprob == pytest.approx(float(table[want.row, want.token_id]), abs=1e-5)
        assert [value for _, value in one.top] == pytest.approx(
            table[want.row].topk(want.num_top).values.tolist(), abs=1e-5
        )


def test_logits_that_are_not_numbers_have_none() -> None:
    """The row's request fails; the others have theirs."""
    logits = torch.tensor([[0.0, float("nan")], [0.0, 0.0]])

    assert [one is None for one in score(logits, [Wanted(0, 0, 1), Wanted(1, 0, 1)])] == [
        True,
        False,
    ]
