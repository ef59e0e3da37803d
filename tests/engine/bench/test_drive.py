"""Four schedules over one engine and a fake model: who is in which forward, what callers meet."""

import time
from dataclasses import dataclass
from typing import Any

import pytest

from failsoft.config.engine import EngineConfig
from failsoft.engine.bench.drive import Driver
from failsoft.engine.bench.run import Served
from failsoft.engine.bench.schedule import SCHEDULES, Room
from failsoft.engine.bench.slots import WatchedRunner, Work
from failsoft.engine.bench.workload import Item
from failsoft.engine.engine import Engine, EngineLimits
from failsoft.engine.sequence import RowResult, StepPlan
from failsoft.errors import BenchError, ForwardError
from tests.engine.builders import BLOCK_SIZE, FakeRunner, expected_output

LENGTHS = [(3, 2), (9, 12), (5, 4), (4, 7), (6, 1), (2, 9), (7, 3)]
NUM_SLOTS = 3
STEP_S = 0.001


@dataclass(kw_only=True)
class Driven:
    plans: list[StepPlan]
    watch: WatchedRunner
    served: tuple[Served, ...]
    driver: Driver


def make_items(*, is_exact: bool = True) -> list[Item]:
    return [
        Item(
            prompt_ids=tuple(range(1000 * number, 1000 * number + prompt)),
            output_len=output,
            is_exact=is_exact,
        )
        for number, (prompt, output) in enumerate(LENGTHS)
    ]


def drive(
    mode: str,
    items: list[Item],
    *,
    runner: FakeRunner | None = None,
    eos: frozenset[int] = frozenset(),
    max_model_len: int = 60,
    num_blocks: int = 200,
) -> Driven:
    inner = runner or FakeRunner(on_run=lambda plan: time.sleep(STEP_S))
    watch = WatchedRunner(inner, num_slots=NUM_SLOTS)
    with Engine(
        runner=watch,
        num_blocks=num_blocks,
        limits=EngineLimits(vocab_size=10**7, max_model_len=max_model_len),
        eos_token_ids=eos,
        version_digest="v",
        config=EngineConfig(max_running=NUM_SLOTS, block_size=BLOCK_SIZE, max_step_tokens=10),
    ) as engine:
        room = Room(
            max_running=NUM_SLOTS,
            num_blocks=num_blocks,
            block_size=BLOCK_SIZE,
            max_step_tokens=10,
            max_model_len=max_model_len,
        )
        driver = Driver(engine, watch, items, SCHEDULES[mode], room, eos_token_ids=eos)
        driver.run()
        served = driver.served()
    plans = [plan for plan in inner.plans if plan.rows[0].sequence.request_id != "start"]
    return Driven(plans=plans, watch=watch, served=served, driver=driver)


def members(plan: StepPlan) -> set[int]:
    return {int(row.sequence.request_id) for row in plan.rows}


@pytest.mark.parametrize("mode", sorted(SCHEDULES))
def test_every_caller_gets_its_own_tokens_and_no_more(mode: str) -> None:
    """The schedule changes when, never what."""
    items = make_items()

    driven = drive(mode, items)

    assert [one.num_output_tokens for one in driven.served] == [output for _, output in LENGTHS]
    for plan in driven.plans:
        for row in plan.rows:
            item = items[int(row.sequence.request_id)]
            made = row.sequence.tokens[len(item.prompt_ids) :][: item.output_len]
            assert made == expected_output(item.prompt_ids, item.output_len)[: len(made)]


def test_sequential_has_one_row_in_every_forward() -> None:
    """In order of arrival."""
    driven = drive("sequential", make_items())

    order = [members(plan) for plan in driven.plans]
    assert all(len(row) == 1 for row in order)
    assert [min(row) for row in order] == sorted(min(row) for row in order)


def test_static_keeps_every_row_until_the_slowest_of_its_batch_ends() -> None:
    """And its replies leave together: first token, last token and end are one moment."""
    driven = drive("static", make_items())

    for batch in ([0, 1, 2], [3, 4, 5], [6]):
        plans = [plan for plan in driven.plans if members(plan) & set(batch)]
        full = [plan for plan in plans if members(plan) == set(batch)]
        assert all(members(plan) <= set(batch) for plan in plans)
        assert plans[-len(full) :] == full, "a row left before the batch was over"
        assert len(full) >= max(LENGTHS[index][1] for index in batch) - 2
        ends = {driven.served[index].e2e_s for index in batch}
        assert ends == {driven.served[index].ttft_s for index in batch}
        assert len(ends) == 1
    assert all(one.tpot_s is None for one in driven.served)
    kept = {span.request for span in driven.watch.board.spans() if span.work is Work.KEPT}
    assert kept == {0, 2, 3, 4}


def test_a_static_batch_ends_with_the_token_that_its_slowest_waits_for() -> None:
    """Not one forward later: the others are dropped before the next."""
    driven = drive("static", make_items()[1:2] + make_items()[2:3])

    forwards = sum(1 for plan in driven.plans if 0 in members(plan))
    assert forwards == LENGTHS[1][1]


def test_static_early_drops_finished_rows_and_lets_nobody_in() -> None:
    """Each reply leaves when it is complete."""
    driven = drive("static-early", make_items())

    for plan in driven.plans:
        assert members(plan) <= {0, 1, 2} or members(plan) <= {3, 4, 5} or members(plan) == {6}
    assert driven.served[0].e2e_s < driven.served[2].e2e_s < driven.served[1].e2e_s
    assert driven.served[1].e2e_s < driven.served[4].e2e_s
    assert not [span for span in driven.watch.board.spans() if span.work is Work.KEPT]


def test_continuous_lets_the_next_in_when_one_leaves() -> None:
    """So the third batch's only member shares forwards with the first's slowest."""
    driven = drive("continuous", make_items())

    assert any(members(plan) == {1, 2, 3} for plan in driven.plans)
    assert len(driven.plans) < len(drive("static-early", make_items()).plans)
    assert all(one.ttft_s <= one.e2e_s for one in driven.served)


def test_a_static_row_that_meets_the_models_limit_leaves_early() -> None:
    """It cannot go on; its neighbours do, and the batch still ends."""
    items = [Item(prompt_ids=(1,) * 20, output_len=2), Item(prompt_ids=(2,) * 2, output_len=20)]

    driven = drive("static", items, max_model_len=24)

    assert [one.num_output_tokens for one in driven.served] == [2, 20]
    assert len({one.e2e_s for one in driven.served}) == 1


@pytest.mark.parametrize("mode", sorted(SCHEDULES))
def test_a_reply_that_may_end_early_ends_at_its_end_token(mode: str) -> None:
    """Which is not shown; a kept row goes on for nobody."""
    items = make_items(is_exact=False)
    eos = expected_output(items[1].prompt_ids, 4)[3]

    driven = drive(mode, items, eos=frozenset({eos}))

    assert driven.served[1].num_output_tokens == 3


def test_a_request_that_fails_ends_the_drive() -> None:
    """A figure of half a run would be none."""

    class Failing(FakeRunner):
        def run(self, plan: StepPlan) -> list[RowResult]:
            results: list[Any] = super().run(plan)
            bad = ForwardError("no numbers", kind="bad_logits")
            return [
                bad if row.sequence.request_id == "3" and result is not None else result
                for row, result in zip(plan.rows, results, strict=True)
            ]

    with pytest.raises(BenchError, match="request 3 failed under continuous: no numbers"):
        drive("continuous", make_items(), runner=Failing())
