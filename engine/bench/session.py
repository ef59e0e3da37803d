"""A model opened for measuring: its engine, watched, warm, and with nothing in its cache.

Loads torch. One process opens one session.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

import torch
import transformers

from failsoft.config.engine import EngineConfig
from failsoft.engine.batch import padded_len
from failsoft.engine.bench.cpu import OtherCpu
from failsoft.engine.bench.drive import Driver
from failsoft.engine.bench.memory import peak_rss_bytes, reset_peak_rss
from failsoft.engine.bench.run import Facts, ModeRun
from failsoft.engine.bench.schedule import SCHEDULES, Room
from failsoft.engine.bench.slots import WatchedRunner
from failsoft.engine.bench.workload import Item
from failsoft.engine.engine import Engine, EngineLimits
from failsoft.engine.launch import load_version
from failsoft.engine.models.load import LoadedModel
from failsoft.engine.prepare import PreparedModel, prepare
from failsoft.engine.request import EngineEvent, FinishedEvent, GenerationRequest, SamplingParams
from failsoft.engine.text.codec import TextCodec
from failsoft.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """An engine that is ready to be measured."""

    loaded: LoadedModel
    prepared: PreparedModel
    config: EngineConfig
    engine: Engine
    watch: WatchedRunner

    @property
    def room(self) -> Room:
        """What a batch must fit into."""
        return Room(
            max_running=self.config.max_running,
            num_blocks=self.prepared.num_blocks,
            block_size=self.config.block_size,
            max_step_tokens=self.config.max_step_tokens,
            max_model_len=self.engine.limits.max_model_len,
        )

    @property
    def facts(self) -> Facts:
        """What is measured, and with what."""
        return facts_of(
            self.loaded,
            compute_dtype=self.prepared.compute_dtype,
            kv_bytes_per_token=sum(
                site.kv_bytes_per_token(self.loaded.model.dtype) for site in self.prepared.sites
            ),
            num_kv_blocks=self.prepared.num_blocks,
            block_size=self.config.block_size,
        )


def facts_of(
    loaded: LoadedModel,
    *,
    compute_dtype: str,
    kv_bytes_per_token: int,
    num_kv_blocks: int,
    block_size: int,
) -> Facts:
    """Return what this process knows of itself."""
    return Facts(
        version=loaded.version.name,
        version_digest=loaded.version.digest,
        dtype=loaded.version.dtype,
        compute_dtype=compute_dtype,
        device=str(next(loaded.model.parameters()).device),
        num_threads=torch.get_num_threads(),
        torch=str(torch.__version__),
        transformers=str(transformers.__version__),
        kv_bytes_per_token=kv_bytes_per_token,
        num_kv_blocks=num_kv_blocks,
        block_size=block_size,
    )


@contextmanager
def open_session(
    name: str,
    *,
    options: Mapping[str, Any],
    config_path: Path | None,
    num_requests: int,
    on_phase: Callable[[str], None],
) -> Iterator[Session]:
    """Yield a session of the version called *name*.

    Args:
        name: A version.
        options: Fields of EngineConfig that were asked for.
        config_path: The settings file; None takes ``failsoft.toml`` if there is one.
        num_requests: How many may wait at once.
        on_phase: Told what is being done.

    Raises:
        ConfigError: There is no such version, or a setting is wrong.
        ModelError: The model cannot be fetched, loaded or served right.
    """
    loaded, config = load_version(name, options=options, config_path=config_path, on_phase=on_phase)
    on_phase(f"testing {name} against its own forward")
    with watched_engine(loaded, replace(config, max_waiting=num_requests + 1)) as session:
        yield session


@contextmanager
def watched_engine(loaded: LoadedModel, config: EngineConfig) -> Iterator[Session]:
    """Yield a session of a loaded model."""
    prepared = prepare(
        loaded.model,
        name=loaded.version.name,
        vocab_size=loaded.vocab_size,
        max_model_len=loaded.max_model_len,
        is_int8=loaded.version.dtype == "int8",
        config=config,
    )
    watch = WatchedRunner(prepared.runner, num_slots=config.max_running)
    with Engine(
        runner=watch,
        num_blocks=prepared.num_blocks,
        limits=EngineLimits(vocab_size=loaded.vocab_size, max_model_len=prepared.max_model_len),
        eos_token_ids=loaded.eos_token_ids,
        version_digest=loaded.version.digest,
        config=config,
    ) as engine:
        yield Session(loaded=loaded, prepared=prepared, config=config, engine=engine, watch=watch)


def measure(
    session: Session,
    mode: str,
    items: Sequence[Item],
    *,
    on_progress: Callable[[int, int], None] = lambda _tokens, _ended: None,
) -> ModeRun:
    """Run *items* under the schedule called *mode*, once.

    Raises:
        FailsoftError: A request failed.
    """
    driver = Driver(
        session.engine,
        session.watch,
        items,
        SCHEDULES[mode],
        session.room,
        eos_token_ids=session.loaded.eos_token_ids,
    )
    preempted_before = session.engine.stats().preemptions_total
    reset_peak_rss()
    others = OtherCpu()
    driver.run(on_progress)
    other_cpu_share = others.share()
    started_s = driver.started_s
    return ModeRun(
        mode=mode,
        num_slots=session.config.max_running,
        wall_s=driver.ended_s - started_s,
        served=driver.served(),
        spans=tuple(
            replace(span, from_s=span.from_s - started_s, to_s=span.to_s - started_s)
            for span in session.watch.board.spans()
        ),
        steps=tuple(
            replace(step, start_s=step.start_s - started_s) for step in session.watch.steps
        ),
        preemptions=session.engine.stats().preemptions_total - preempted_before,
        peak_rss_bytes=peak_rss_bytes(),
        other_cpu_share=other_cpu_share,
        facts=session.facts,
    )


def with_ids(items: Sequence[Item], loaded: LoadedModel, *, max_model_len: int) -> list[Item]:
    """Return *items* with their texts as ids, all of which the engine can take.

    Raises:
        ConfigError: One of them can never run; the error names it.
    """
    codec = TextCodec(loaded.tokenizer, chat_template=None, system_prompt=None)
    found = []
    for index, item in enumerate(items):
        ids = item.prompt_ids or tuple(codec.encode_prompt(item.text or ""))
        for token_id in ids:
            if not 0 <= token_id < loaded.vocab_size:
                raise ConfigError(
                    key=f"requests.{index}.prompt_ids",
                    value=token_id,
                    allowed=f"0..{loaded.vocab_size - 1} with {loaded.version.name}",
                )
        if len(ids) + item.output_len > max_model_len:
            raise ConfigError(
                key=f"requests.{index}",
                value=f"{len(ids)} + {item.output_len} tokens",
                allowed=f"prompt and output of at most {max_model_len} tokens together here",
            )
        found.append(replace(item, prompt_ids=ids))
    return found


def warm_up(session: Session) -> None:
    """Meet every length of a forward once: kernels are built on first use, and no schedule's."""
    limit = min(session.config.max_step_tokens, session.engine.limits.max_model_len - 1)
    lengths = sorted({min(padded_len(length), limit) for length in range(1, limit + 1)})
    for number, length in enumerate(lengths):
        done = Event()

        def hear(event: EngineEvent, done: Event = done) -> None:
            if isinstance(event, FinishedEvent):
                done.set()

        request = GenerationRequest(
            request_id=f"warm-up-{number}",
            prompt_ids=(1,) * length,
            sampling=SamplingParams(max_tokens=1, temperature=0.0),
            arrival_s=0.0,
            cache_salt=f"warm-up-{number}",  # no other request finds anything of it
        )
        session.engine.submit(request, hear)
        done.wait()
