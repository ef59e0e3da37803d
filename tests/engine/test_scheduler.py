"""The scheduler: what is packed, admitted, preempted and refused."""

import random

import pytest

from failsoft.engine.sequence import SequenceState, StepPlan
from failsoft.errors import RequestTooLongError
from tests.engine.builders import (
    BLOCK_SIZE,
    Collector,
    FakeRunner,
    expected_output,
    make_loop,
    make_request,
    make_scheduler,
    no_sink,
    run_to_end,
)


def packed(plan: StepPlan) -> dict[str, int]:
    return {row.sequence.request_id: row.num_tokens for row in plan.rows}


def add(scheduler: object, *requests: object) -> None:
    for request in requests:
        scheduler.add(request, no_sink, seed=0)  # type: ignore[attr-defined]


def test_decodes_are_packed_before_a_long_prompt() -> None:
    """A prompt under way gets what the decodes leave of the budget."""
    scheduler = make_scheduler(max_step_tokens=8)
    loop = make_loop(scheduler)
    loop.add(make_request("a", 3, max_tokens=20), no_sink)
    loop.step()
    loop.add(make_request("long", 30, max_tokens=2), no_sink)

    plan = scheduler.schedule(100.0)

    assert packed(plan) == {"a": 1, "long": 7}
    assert [row.sequence.request_id for row in plan.rows] == ["a", "long"]


def test_a_finished_sequence_leaves_and_a_queued_one_joins_in_the_next_step() -> None:
    """Continuous batching: no slot idles behind the slowest member."""
    scheduler = make_scheduler(max_running=2)
    runner = FakeRunner()
    loop = make_loop(scheduler, runner)
    for name, max_tokens in (("short", 1), ("long", 5), ("queued", 2)):
        loop.add(make_request(name, 3, max_tokens=max_tokens), no_sink)

    loop.step()
    loop.step()

    assert set(packed(runner.plans[0])) == {"short", "long"}
    assert set(packed(runner.plans[1])) == {"long", "queued"}


def test_a_prompt_longer_than_the_budget_runs_in_chunks() -> None:
    """Only the last chunk samples."""
    scheduler = make_scheduler(max_step_tokens=4)
    runner = FakeRunner()
    loop = make_loop(scheduler, runner)
    loop.add(make_request("a", 10, max_tokens=1), no_sink)

    run_to_end(loop)

    assert [row.num_tokens for plan in runner.plans for row in plan.rows] == [4, 4, 2]
    assert [row.is_sampling for plan in runner.plans for row in plan.rows] == [False, False, True]


def test_preempted_request_goes_to_the_front_of_waiting() -> None:
    """The newest running request gives up its KV blocks and is served next."""
    scheduler = make_scheduler(num_blocks=4, max_step_tokens=64, prefix_cache=False)
    loop = make_loop(scheduler)
    loop.add(make_request("old", 4, max_tokens=9), no_sink)
    loop.add(make_request("new", 4, max_tokens=9), no_sink)
    loop.add(make_request("later", 4, max_tokens=2), no_sink)
    while not scheduler.preemptions_total:
        loop.step()

    assert scheduler.waiting_ids[0] == "new"
    assert "later" in scheduler.waiting_ids
    new = scheduler.get("new")
    assert new is not None
    assert (new.state, new.num_computed, new.blocks) == (SequenceState.WAITING, 0, [])


def test_nothing_is_admitted_in_a_step_that_preempted() -> None:
    """Or the blocks just freed would go to a newcomer and be missing again at once."""
    scheduler = make_scheduler(num_blocks=4, prefix_cache=False)
    runner = FakeRunner()
    loop = make_loop(scheduler, runner)
    for name in ("a", "b", "c", "d"):
        loop.add(make_request(name, 3, max_tokens=9), no_sink)

    run_to_end(loop)

    preempting = [index for index, plan in enumerate(runner.plans) if plan.num_preempted]
    assert preempting
    for index in preempting:
        before = {row.sequence.request_id for row in runner.plans[index - 1].rows}
        assert {row.sequence.request_id for row in runner.plans[index].rows} <= before


def test_priority_overtakes_in_the_queue() -> None:
    """A lower number is served first."""
    scheduler = make_scheduler(max_running=1)
    add(scheduler, make_request("low", priority=1), make_request("high", priority=-1))

    assert scheduler.waiting_ids == ["high", "low"]


def test_waiting_lifts_priority_so_nobody_starves() -> None:
    """One level of priority is worth aging_s seconds of waiting."""
    scheduler = make_scheduler(aging_s=10.0)
    add(
        scheduler,
        make_request("patient", priority=1, arrival_s=100.0),
        make_request("urgent early", priority=0, arrival_s=109.0),
        make_request("urgent late", priority=0, arrival_s=111.0),
    )

    assert scheduler.waiting_ids == ["urgent early", "patient", "urgent late"]


def test_a_long_prompt_is_admitted_under_a_flood_of_short_ones() -> None:
    """Head of line is not skipped, so short arrivals cannot starve it."""
    scheduler = make_scheduler(num_blocks=20, max_running=4, prefix_cache=False)
    loop = make_loop(scheduler)
    events = Collector()
    for n in range(4):
        loop.add(make_request(f"s{n}", 4, max_tokens=8), events)
    loop.add(make_request("long", 60, max_tokens=2), events)
    for n in range(4, 60):
        loop.add(make_request(f"s{n}", 4, max_tokens=8), events)

    run_to_end(loop)

    order = list(events.finished)
    assert order.index("long") < 10


def test_an_impossible_request_is_refused_whole() -> None:
    """Prompt plus output that the pool can never hold does not enter the queue (vllm#1534)."""
    scheduler = make_scheduler(num_blocks=4, max_model_len=1000)

    with pytest.raises(RequestTooLongError) as caught:
        scheduler.check_fits(make_request("a", 10, max_tokens=8))

    assert (caught.value.num_tokens, caught.value.limit) == (18, 17)
    assert caught.value.param == "max_tokens"
    scheduler.check_fits(make_request("b", 10, max_tokens=7))


def test_the_largest_request_that_fits_the_pool_runs() -> None:
    """The last sampled token needs no KV, so the pool holds one token more than its slots."""
    scheduler = make_scheduler(num_blocks=4)
    request = make_request("a", 10, max_tokens=7)
    loop = make_loop(scheduler)
    events = Collector()
    loop.add(request, events)

    run_to_end(loop)

    assert events.tokens["a"] == expected_output(request.prompt_ids, 7)


def test_a_prefix_hit_leaves_the_last_token_to_compute() -> None:
    """A prompt that is cached whole still needs the logits of its last token."""
    scheduler = make_scheduler()
    runner = FakeRunner()
    loop = make_loop(scheduler, runner)
    prompt = list(range(2 * BLOCK_SIZE))
    loop.add(make_request("first", prompt, max_tokens=1), no_sink)
    run_to_end(loop)
    events = Collector()
    loop.add(make_request("second", prompt, max_tokens=1), events)

    run_to_end(loop)

    assert events.finished["second"].record.num_cached_tokens == BLOCK_SIZE
    assert runner.plans[-1].num_tokens == BLOCK_SIZE


def test_equal_prompts_at_once_wait_for_the_leader_and_then_hit() -> None:
    """Followers are held back one step, so a shared prefix is computed once."""
    scheduler = make_scheduler()
    runner = FakeRunner()
    loop = make_loop(scheduler, runner)
    events = Collector()
    shared = list(range(3 * BLOCK_SIZE))
    for n in range(4):
        loop.add(make_request(f"r{n}", [*shared, 50 + n], max_tokens=3), events)

    run_to_end(loop)

    assert set(packed(runner.plans[0])) == {"r0"}
    assert set(packed(runner.plans[1])) == {"r0", "r1", "r2", "r3"}
    cached = [events.finished[f"r{n}"].record.num_cached_tokens for n in range(4)]
    assert cached == [0, 12, 12, 12]


def test_a_follower_whose_leader_is_aborted_computes_the_prefix_itself() -> None:
    """A leader that leaves takes its promise with it."""
    scheduler = make_scheduler(max_step_tokens=5)
    loop = make_loop(scheduler)
    events = Collector()
    shared = list(range(3 * BLOCK_SIZE))
    loop.add(make_request("leader", [*shared, 50], max_tokens=3), events)
    loop.add(make_request("follower", [*shared, 51], max_tokens=3), events)
    loop.step()
    leader = scheduler.get("leader")
    assert leader is not None
    scheduler.remove(leader)

    run_to_end(loop)

    assert events.tokens["follower"] == expected_output((*shared, 51), 3)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("prefix_cache", [True, False], ids=["cached", "uncached"])
def test_any_story_gives_each_request_its_own_text(seed: int, prefix_cache: bool) -> None:
    """Chunks, preemptions, shared prefixes and aborts never change a text (fixed seeds)."""
    rng = random.Random(seed)
    scheduler = make_scheduler(
        num_blocks=rng.randrange(12, 30),
        max_running=rng.randrange(2, 9),
        max_step_tokens=rng.choice([3, 7, 64]),
        prefix_cache=prefix_cache,
    )
    loop = make_loop(scheduler)
    events = Collector()
    requests = []
    prefixes = [[rng.randrange(9) for _ in range(20)] for _ in range(3)]
    for n in range(40):
        head = rng.choice(prefixes)[: rng.randrange(1, 20)]
        prompt = [*head, *(rng.randrange(9) for _ in range(rng.randrange(0, 8)))]
        request = make_request(
            f"r{n}", prompt, max_tokens=rng.randrange(1, 15), priority=rng.randrange(-1, 2)
        )
        requests.append(request)
        loop.add(request, events)
        if rng.random() < 0.4:
            loop.step()
        if rng.random() < 0.1 and scheduler.live():
            scheduler.remove(rng.choice(scheduler.live()))
        scheduler.check()

    run_to_end(loop)

    assert scheduler.pool.num_used == 0
    assert len(events.finished) > 25
    for request in requests:
        if request.request_id in events.finished:
            wanted = expected_output(request.prompt_ids, request.sampling.max_tokens)
            assert events.tokens[request.request_id] == wanted
