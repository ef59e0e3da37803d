"""Rows with a grammar in the step loop: masks, preemption, retried forwards, faults, the end."""

import json
import threading
from collections.abc import Iterator

import pytest

from failsoft.config.engine import EngineConfig
from failsoft.engine.kv_block import BlockPool
from failsoft.engine.prepare import PreparedModel, prepare
from failsoft.engine.request import GenerationRequest, SamplingParams
from failsoft.engine.scheduler import Scheduler
from failsoft.engine.sequence import RowResult, StepPlan
from failsoft.engine.structured import constraint
from failsoft.engine.structured.compiler import CompiledGrammar
from failsoft.errors import ForwardError
from failsoft.records import FinishReason
from tests.engine.architectures import SERVED, make_model
from tests.engine.builders import Collector, make_loop, make_request, run_to_end
from tests.engine.http.rig import ids_of, tiny_compiler
from tests.engine.tiny_tokenizer import byte_level_tokenizer

SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "string", "minLength": 6, "maxLength": 12},
        "b": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3},
    },
    "required": ["a", "b"],
}
EOS = 2


@pytest.fixture(scope="module")
def prepared() -> PreparedModel:
    """A random model of the tiny tokenizer's width, and room for few tokens."""
    vocab_size = byte_level_tokenizer().get_vocab_size()
    model = make_model("llama", {**SERVED["llama"], "vocab_size": vocab_size})
    config = EngineConfig(block_size=4, num_kv_blocks=40, max_step_tokens=16, num_threads=1)
    return prepare(model, name="llama", vocab_size=vocab_size, max_model_len=160, config=config)


class RetriedRunner:
    """Fails every third forward of several rows as a whole, after it has computed it."""

    def __init__(self, prepared: PreparedModel) -> None:
        self._runner = prepared.runner
        self._count = 0

    def run(self, plan: StepPlan) -> list[RowResult]:
        self._count += 1
        results = self._runner.run(plan)
        if len(plan.rows) > 1 and self._count % 3 == 0:
            raise ForwardError("a forward failed", kind="exception")
        return results


def request(
    name: str, grammar: CompiledGrammar | None, *, max_tokens: int = 100, seed: int = 0
) -> GenerationRequest:
    return GenerationRequest(
        request_id=name,
        prompt_ids=tuple(ids_of("make one up, twice, " * 2)),
        sampling=SamplingParams(max_tokens=max_tokens, temperature=1.0, seed=seed),
        arrival_s=100.0,
        grammar=grammar,
    )


def scheduler(num_blocks: int) -> Scheduler:
    return Scheduler(
        pool=BlockPool(num_blocks=num_blocks, block_size=4),
        max_running=8,
        max_step_tokens=16,
        max_model_len=160,
        aging_s=10.0,
        is_prefix_cache_on=False,
        version_digest="v",
    )


def test_preempted_and_retried_rows_say_what_they_say_alone(prepared: PreparedModel) -> None:
    """What is computed again moves no grammar, and free rows between them stay as they are."""
    grammar = tiny_compiler().compile(constraint.json_schema(SCHEMA, "p"))
    asked = [
        request(str(n), grammar if n % 3 else None, seed=n, max_tokens=100 if n % 3 else 30)
        for n in range(6)
    ]
    alone = Collector()
    for each in asked:
        loop = make_loop(scheduler(40), prepared.runner, eos=frozenset([EOS]))
        loop.add(each, alone)
        run_to_end(loop)

    together = Collector()
    crowded = scheduler(40)
    loop = make_loop(crowded, RetriedRunner(prepared), eos=frozenset([EOS]))
    for each in asked:
        loop.add(each, together)
    run_to_end(loop)

    assert crowded.preemptions_total > 0
    assert loop.forward_errors_total > 0
    assert together.tokens == alone.tokens
    for each in asked:
        if each.grammar is not None:
            record = together.finished[each.request_id].record
            assert record.finish_reason is FinishReason.STOP
            value = json.loads(byte_level_tokenizer().decode(together.tokens[each.request_id]))
            assert set(value) == {"a", "b"}


class Brittle:
    """A grammar that breaks at its third token, in the mask or in the advance."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._count = 0
        self.is_over = False

    def start(self) -> "Brittle":
        return Brittle(self._where)

    def allowed(self) -> bytes:
        if self._where == "mask" and self._count == 2:
            raise ForwardError("too large", kind="grammar")
        return b"\xff" * 100

    def advance(self, token_id: int) -> None:
        self._count += 1
        if self._where == "advance" and self._count == 2:
            raise ForwardError("too large", kind="grammar")


@pytest.mark.parametrize(("where", "num_shown"), [("mask", 2), ("advance", 1)])
def test_a_grammar_that_breaks_takes_its_own_row_alone(
    prepared: PreparedModel, where: str, num_shown: int
) -> None:
    """Its neighbours in the same forward end as ever, and no health check hears of it."""
    events = Collector()
    loop = make_loop(scheduler(40), prepared.runner)
    free = request("free", None, max_tokens=9)
    broken = GenerationRequest(
        request_id="broken",
        prompt_ids=free.prompt_ids,
        sampling=free.sampling,
        arrival_s=100.0,
        grammar=Brittle(where),
    )
    loop.add(free, events)
    loop.add(broken, events)
    run_to_end(loop)

    error = events.finished["broken"].error
    assert isinstance(error, ForwardError)
    assert error.kind == "grammar"
    assert len(events.tokens["broken"]) == num_shown
    assert events.finished["free"].error is None
    assert len(events.tokens["free"]) == 9
    assert loop.failed_steps_in_a_row == 0


def test_the_last_token_that_is_allowed_completes_rather_than_cuts() -> None:
    """A grammar that is over at max_tokens ends by ``stop``."""
    grammar = tiny_compiler().compile(constraint.choice(["ab"], "p"))
    first, second = ids_of("a")[0], ids_of("b")[0]
    told = iter([first, second])
    loop, events = make_loop(scheduler(40), _Scripted(told)), Collector()
    loop.add(request("a", grammar, max_tokens=2), events)

    run_to_end(loop)

    assert events.finished["a"].record.finish_reason is FinishReason.STOP
    assert events.tokens["a"] == [first, second]


class _Scripted:
    """Says given tokens."""

    def __init__(self, tokens: Iterator[int]) -> None:
        self._tokens = tokens

    def run(self, plan: StepPlan) -> list[RowResult]:
        return [next(self._tokens) if row.is_sampling else None for row in plan.rows]


def test_followers_may_be_started_on_any_thread() -> None:
    """Requests are compiled on threads of the server and followed on the engine's."""
    grammar = tiny_compiler().compile(constraint.json_schema(SCHEMA, "p"))
    masks: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: masks.append(grammar.start().allowed())) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(masks) == 4
    assert len(set(masks)) == 1


def test_a_request_without_grammar_has_none() -> None:
    """The engine's own callers need not know of them."""
    assert make_request("a").grammar is None
