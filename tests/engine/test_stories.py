"""Random stories with everything that goes wrong at once; each caller gets its own text.

Tiny pools, tiny budgets, shared prefixes, salts, priorities, deadlines, aborts, rows that
fail, forwards that fail, sinks that raise: whatever comes out of the fake model is checked
against what it says to that prompt alone, and the books must balance after every step.
"""

import logging
import random
import threading
import time

import pytest

from failsoft.config.engine import EngineConfig
from failsoft.engine.engine import Engine, EngineLimits
from failsoft.engine.request import EngineEvent, FinishedEvent, GenerationRequest, TokenEvent
from failsoft.engine.sequence import RowResult, StepPlan
from failsoft.engine.step_log import StepLog
from failsoft.engine.step_loop import StepLoop
from failsoft.errors import (
    EngineStoppedError,
    ForwardError,
    QueueFullError,
    RequestTooLongError,
)
from failsoft.records import FinishReason, RequestRecord
from tests.engine.builders import (
    BLOCK_SIZE,
    FakeClock,
    FakeRunner,
    expected_output,
    make_request,
    make_scheduler,
)

MAX_STEPS = 20_000


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


class FaultyRunner(FakeRunner):
    """Fails forwards that hold a request called ``bad…``, and now and then any other."""

    def __init__(self, rng: random.Random, clock: FakeClock) -> None:
        super().__init__()
        self._rng = rng
        self._clock = clock

    def run(self, plan: StepPlan) -> list[RowResult]:
        self._clock.now_s += self._rng.choice([0, 0.1, 1.0])
        results = super().run(plan)
        is_bad = any(row.sequence.request_id.startswith("bad") for row in plan.rows)
        if is_bad or self._rng.random() < 0.02:
            raise ForwardError("a forward failed", kind="exception")
        for index, row in enumerate(plan.rows):
            is_nan = row.sequence.request_id.startswith("nan") and self._rng.random() < 0.3
            if is_nan and results[index] is not None:
                results[index] = ForwardError("no numbers", kind="bad_logits")
                for position in range(row.start, row.start + row.num_tokens):
                    self.slots[self._slot(row.sequence.blocks, position)] = -1
        return results


class Story:
    """One random run of a step loop on a virtual clock."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.clock = FakeClock()
        self.scheduler = make_scheduler(
            num_blocks=rng.choice([1, 2, 3, 6, 12, 16, 40]),
            max_running=rng.choice([1, 2, 3, 8]),
            max_step_tokens=rng.choice([1, 2, 3, 7, 16, 64]),
            max_model_len=rng.choice([5, 20, 60]),
            prefix_cache=rng.random() < 0.8,
            aging_s=rng.choice([0.001, 10.0]),
        )
        self.runner = FaultyRunner(rng, self.clock)
        self.records: list[RequestRecord] = []
        self.events: dict[str, list[EngineEvent]] = {}
        self.requests: dict[str, GenerationRequest] = {}
        self.loop = StepLoop(
            scheduler=self.scheduler,
            runner=self.runner,
            clock=self.clock,
            eos_token_ids=frozenset(),
            step_log=StepLog(),
            on_record=self.records.append,
        )
        self._prefixes = [
            [rng.randrange(50) for _ in range(rng.choice([0, 8, 12, 19]))] for _ in range(3)
        ]

    def run(self) -> None:
        """Let up to 24 requests come and all of them end."""
        num_to_come = self.rng.randrange(1, 25)
        for _ in range(MAX_STEPS):
            if num_to_come and self.rng.random() < 0.4:
                num_to_come -= 1
                self._add(f"{self.rng.choice(['r'] * 8 + ['bad', 'nan'])}{num_to_come}")
            for name in self.requests:
                if self.rng.random() < 0.01:
                    self.loop.end(name, FinishReason.ABORT)
            self.loop.step()
            self.scheduler.check()
            if not num_to_come and not self.scheduler.has_work:
                return
        raise AssertionError(f"still busy after {MAX_STEPS} steps")

    def _add(self, name: str) -> None:
        rng = self.rng
        now_s = self.clock.now_s
        own = [rng.randrange(50) for _ in range(rng.choice([0, 0, 1, 3, 8]))]
        prompt = rng.choice(self._prefixes) + own or [0]
        request = make_request(
            name,
            prompt,
            max_tokens=rng.randrange(1, 40),
            arrival_s=now_s,
            priority=rng.choice([0, 0, 0, -5, 5]),
            deadline_s=rng.choice([None, None, None, now_s - 1, now_s + rng.random() * 60]),
            cache_salt=rng.choice(["", "", "x"]),
        )
        try:
            self.scheduler.check_fits(request)
        except RequestTooLongError:
            return
        self.requests[name] = request
        self.loop.add(request, self._sink)

    def _sink(self, event: EngineEvent) -> None:
        self.events.setdefault(event.request_id, []).append(event)
        if self.rng.random() < 0.003:
            raise RuntimeError("the caller's own code")


@pytest.mark.parametrize("first_seed", range(0, 1200, 200))
def test_every_request_gets_its_own_text_and_one_end(first_seed: int) -> None:
    """200 stories for each case; seeds are fixed, so a failure can be replayed."""
    for seed in range(first_seed, first_seed + 200):
        story = Story(seed)
        story.run()

        assert story.scheduler.pool.num_used == 0, seed
        assert sorted(record.request_id for record in story.records) == sorted(story.requests), seed
        for record in story.records:
            request = story.requests[record.request_id]
            events = story.events.get(record.request_id, [])
            tokens = [event.token_id for event in events if isinstance(event, TokenEvent)]
            expected = expected_output(request.prompt_ids, request.sampling.max_tokens)
            is_whole = record.finish_reason is FinishReason.LENGTH
            assert tokens == (expected if is_whole else expected[: len(tokens)]), seed
            assert record.num_output_tokens == len(tokens), seed
            assert not any(isinstance(event, FinishedEvent) for event in events[:-1]), seed
        for plan in story.runner.plans:
            assert all(row.num_tokens > 0 for row in plan.rows), seed
            assert plan.num_tokens <= story.scheduler.max_step_tokens, seed
            assert len(plan.rows) <= story.scheduler.max_running, seed


def _harass(engine: Engine, worker: int, seed: int, ends: list[str]) -> list[str]:
    """Submit and abort from one thread; return the ids that were taken."""
    rng = random.Random(seed * 100 + worker)
    taken: list[str] = []

    def sink(event: EngineEvent) -> None:
        if isinstance(event, FinishedEvent):
            ends.append(event.request_id)

    for number in range(40):
        deadline_s = None if rng.random() < 0.8 else time.monotonic() + rng.random() * 0.01
        name, length = f"w{worker}-{number}", rng.randrange(1, 12)
        request = make_request(name, length, max_tokens=rng.randint(1, 7), deadline_s=deadline_s)
        try:
            engine.submit(request, sink)
            taken.append(name)
        except (QueueFullError, EngineStoppedError):
            time.sleep(0.0005)
        if taken and rng.random() < 0.4:
            engine.abort(rng.choice(taken))
        engine.stats()
    return taken


@pytest.mark.parametrize("seed", range(40))
def test_whatever_the_engine_took_ends_exactly_once(seed: int) -> None:
    """Four threads submit and abort while it is drained, closed, dies, or is left alone."""
    rng = random.Random(seed)
    num_until_death = rng.randrange(5, 60) if seed % 4 == 3 else MAX_STEPS

    def misbehave(plan: StepPlan) -> None:
        if plan.step >= num_until_death:
            raise ZeroDivisionError("a bug of ours")
        if rng.random() < 0.05:
            raise ForwardError("a forward failed", kind="exception")

    engine = Engine(
        runner=FakeRunner(on_run=misbehave),
        num_blocks=rng.choice([8, 20, 64]),
        limits=EngineLimits(vocab_size=10_000_000, max_model_len=30),
        eos_token_ids=frozenset(),
        version_digest="v",
        config=EngineConfig(max_running=4, block_size=BLOCK_SIZE, max_waiting=rng.choice([1, 50])),
    )
    taken: list[str] = []
    ends: list[str] = []
    threads = [
        threading.Thread(
            target=lambda worker=worker: taken.extend(_harass(engine, worker, seed, ends))
        )
        for worker in range(4)
    ]
    for thread in threads:
        thread.start()
    time.sleep(rng.random() * 0.02)
    if seed % 4 == 0:
        engine.drain(rng.choice([0.0, 0.01, 2.0]))
    if seed % 4 == 1:
        engine.close()
    for thread in threads:
        thread.join()
    assert engine.drain(10)
    engine.close()

    assert sorted(ends) == sorted(taken)
