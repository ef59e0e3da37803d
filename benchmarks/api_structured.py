"""Random JSON schemas against a running server, and what masks cost in throughput."""

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import httpx2
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from benchmarks.engine_http import running_server
from benchmarks.engine_session import Batch, load
from benchmarks.proof import Line
from benchmarks.random_schemas import Schema, random_schema
from failsoft.config.engine import EngineConfig
from failsoft.engine.engine import Engine
from failsoft.engine.launch import describe
from failsoft.engine.models.load import LoadedModel
from failsoft.engine.request import GenerationRequest, SamplingParams
from failsoft.engine.structured import constraint
from failsoft.engine.structured.grammar import Grammar
from failsoft.engine.text.codec import ChatMessage

MODEL = "smollm2-135m-instruct"
NUM_SCHEMAS, SHORT_SCHEMAS = 1000, 24
NUM_RUNNING = 16
MAX_TOKENS, SHORT_TOKENS = 256, 32
MIN_FINISHED_RATIO = 0.95
MAX_COST_RATIO = 0.10
SHORT_COST_RATIO = 0.25
"""A shorter run is noisier."""
_QUESTION = "Make up one record as JSON."


class Answer(NamedTuple):
    """What came of one schema."""

    status: int
    finish_reason: str
    is_valid: bool


def measure_schemas(*, is_short: bool) -> Iterator[Line]:
    """Yield how many random schemas finish, and whether what finished validates."""
    count = SHORT_SCHEMAS if is_short else NUM_SCHEMAS
    with (
        running_server("engine", "serve", "--max-running", str(NUM_RUNNING)) as server,
        httpx2.Client(base_url=server.url, timeout=600) as client,
        ThreadPoolExecutor(NUM_RUNNING) as pool,
    ):
        answers = list(pool.map(lambda n: _ask(client, n), range(count)))
    reasons = Counter(answer.finish_reason for answer in answers)
    finished = [answer for answer in answers if answer.finish_reason == "stop"]
    ratio = len(finished) / count
    yield Line(
        must_hold=f"{count} random schemas: at least {MIN_FINISHED_RATIO:.0%} finish within "
        f"{MAX_TOKENS} tokens",
        figure=f"{ratio:.1%} ({', '.join(f'{n} {reason}' for reason, n in reasons.items())})",
        has_passed=ratio >= MIN_FINISHED_RATIO,
    )
    num_valid = sum(answer.is_valid for answer in finished)
    yield Line(
        must_hold="every finished reply validates",
        figure=f"{num_valid} of {len(finished)}",
        has_passed=num_valid == len(finished) > 0,
    )


def _ask(client: httpx2.Client, number: int) -> Answer:
    schema = random_schema(number)
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": _QUESTION}],
        "max_tokens": MAX_TOKENS,
        "seed": number,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "record", "schema": schema},
        },
    }
    reply = client.post("/v1/chat/completions", json=body)
    if reply.status_code != 200:
        return Answer(reply.status_code, f"HTTP {reply.status_code}", False)
    choice = reply.json()["choices"][0]
    return Answer(200, choice["finish_reason"], is_valid(choice["message"]["content"], schema))


def is_valid(text: str, schema: Schema) -> bool:
    """Whether *text* is JSON that *schema* allows, formats checked too."""
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    try:
        validator.validate(json.loads(text))
    except (ValueError, ValidationError):
        return False
    return True


def measure_cost(*, is_short: bool) -> Iterator[Line]:
    """Yield the throughput with masks against that without, on equal output lengths.

    The constrained run says how long each reply is; the free one is made to write as much.
    Runs alternate, and the fastest of each is taken: a busy moment only ever slows.
    """
    count, rounds = (NUM_RUNNING, 2) if is_short else (2 * NUM_RUNNING, 3)
    max_tokens = SHORT_TOKENS if is_short else MAX_TOKENS
    limit = SHORT_COST_RATIO if is_short else MAX_COST_RATIO
    loaded = load(MODEL, "bfloat16")
    with Engine.from_model(loaded, EngineConfig(max_running=NUM_RUNNING)) as engine:
        runs = _Runs(engine, loaded, count)
        lengths = runs.constrained([max_tokens] * count).lengths  # warms every kernel, too
        masked, free = [], []
        for _ in range(rounds):
            masked.append(runs.constrained(lengths).wall_s)
            free.append(runs.free(lengths).wall_s)
    cost = 1 - min(free) / min(masked)
    num_tokens = sum(lengths)
    yield Line(
        must_hold=f"masks cost at most {limit:.0%} of the throughput at {NUM_RUNNING} running",
        figure=f"{cost:.1%} ({num_tokens / min(masked):.0f} against "
        f"{num_tokens / min(free):.0f} tokens/s)",
        has_passed=cost <= limit,
    )


class _Run(NamedTuple):
    lengths: list[int]
    wall_s: float


class _Runs:
    """The same chats again and again, with their grammars or without.

    Args:
        engine: Runs them.
        loaded: Its model.
        count: Chats.
    """

    def __init__(self, engine: Engine, loaded: LoadedModel, count: int) -> None:
        served = describe(loaded, max_model_len=engine.limits.max_model_len)
        assert served.compiler is not None
        self._engine = engine
        self._prompt = tuple(
            served.codec.encode_chat([ChatMessage(role="user", content=_QUESTION)])
        )
        self._grammars = [
            served.compiler.compile(constraint.json_schema(random_schema(n), "response_format"))
            for n in range(count)
        ]
        self._num_runs = 0

    def constrained(self, lengths: list[int]) -> _Run:
        """Run with grammars; a reply ends when its grammar does, or at its length."""
        return self._run(lengths, self._grammars)

    def free(self, lengths: list[int]) -> _Run:
        """Run without, each to its length."""
        return self._run(lengths, [None] * len(lengths))

    def _run(self, lengths: list[int], grammars: Sequence[Grammar | None]) -> _Run:
        self._num_runs += 1
        count = len(lengths)
        batch = Batch([[] for _ in lengths], [None] * count, [None] * count, _left=count)
        started_s = time.monotonic()
        for index, (length, grammar) in enumerate(zip(lengths, grammars, strict=True)):
            request = GenerationRequest(
                request_id=f"{self._num_runs}-{index}",
                prompt_ids=self._prompt,
                sampling=SamplingParams(
                    max_tokens=length, temperature=0.2, top_p=0.9, seed=index, ignore_eos=True
                ),
                arrival_s=time.monotonic(),
                grammar=grammar,
            )
            self._engine.submit(request, batch.sink(index))
        batch.wait()
        assert not any(batch.errors), batch.errors
        return _Run([len(output) for output in batch.outputs], time.monotonic() - started_s)
