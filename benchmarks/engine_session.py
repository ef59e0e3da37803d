"""An engine opened for measuring: one version, its own settings, many requests at once."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks.workload import Item
from failsoft.config.engine import EngineConfig
from failsoft.engine.engine import Engine
from failsoft.engine.models.load import LoadedModel, load_model
from failsoft.engine.models.resolve import resolve_version
from failsoft.engine.models.store import ModelStore
from failsoft.engine.request import (
    EngineEvent,
    FinishedEvent,
    GenerationRequest,
    SamplingParams,
    TokenEvent,
)
from failsoft.errors import EngineError
from failsoft.records import RequestRecord


def load(name: str, dtype: str) -> LoadedModel:
    """Return a version's model, fetched and converted if need be."""
    store = ModelStore()
    return load_model(resolve_version(name, dtype=dtype, store=store), store=store)


@contextmanager
def open_engine(name: str, *, dtype: str, config: EngineConfig) -> Iterator[Engine]:
    """Yield an engine of the version called *name*."""
    with Engine.from_model(load(name, dtype), config) as engine:
        yield engine


@dataclass(slots=True)
class Batch:
    """What came of requests that were submitted at once, in their order."""

    outputs: list[list[int]]
    records: list[RequestRecord | None]
    errors: list[EngineError | None]
    wall_s: float = 0.0
    _left: int = 0
    _done: threading.Event = field(default_factory=threading.Event)

    def sink(self, index: int) -> "Sink":
        """Return the sink of request *index*."""
        return Sink(self, index)

    def count_down(self) -> None:
        """Note one end."""
        self._left -= 1
        if not self._left:
            self._done.set()

    def wait(self) -> None:
        """Block until all have ended."""
        self._done.wait()


@dataclass(slots=True)
class Sink:
    """Keeps the events of one request of a batch."""

    batch: Batch
    index: int

    def __call__(self, event: EngineEvent) -> None:
        """Take *event* in."""
        if isinstance(event, TokenEvent):
            self.batch.outputs[self.index].append(event.token_id)
            return
        if not isinstance(event, FinishedEvent):
            return
        self.batch.records[self.index] = event.record
        self.batch.errors[self.index] = event.error
        self.batch.count_down()


def run_batch(engine: Engine, items: Sequence[Item], *, tag: str = "r") -> Batch:
    """Submit *items* at once, greedy and of exact length, and wait for the last."""
    count = len(items)
    batch = Batch([[] for _ in items], [None] * count, [None] * count, _left=count)
    started_s = time.monotonic()
    for index, item in enumerate(items):
        request = GenerationRequest(
            request_id=f"{tag}-{index}",
            prompt_ids=item.prompt_ids,
            sampling=SamplingParams(max_tokens=item.output_len, temperature=0.0, ignore_eos=True),
            arrival_s=time.monotonic(),
        )
        engine.submit(request, batch.sink(index))
    batch.wait()
    batch.wall_s = time.monotonic() - started_s
    return batch
