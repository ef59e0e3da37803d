"""Transformers' own padded ``generate``, as a service without per-step scheduling would run it.

Prompts are padded on the left to the longest, and the batch runs until its longest output is
done; every reply leaves then. One batch if memory allows, else as few as it allows. Loads
torch. Stamps are ``time.monotonic()`` seconds.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from failsoft.engine.bench.cpu import OtherCpu
from failsoft.engine.bench.job import Job
from failsoft.engine.bench.memory import peak_rss_bytes, reset_peak_rss
from failsoft.engine.bench.run import ModeRun, Served
from failsoft.engine.bench.session import facts_of, with_ids
from failsoft.engine.bench.slots import Row, SlotBoard, Step, Work
from failsoft.engine.bench.workload import Item
from failsoft.engine.free_memory import available_bytes
from failsoft.engine.launch import load_version
from failsoft.engine.models.load import LoadedModel
from failsoft.errors import UnsupportedModelError

_MEMORY_SHARE = 0.7
"""Of the available memory that a batch may be expected to need."""


def run_padded(
    job: Job, *, on_phase: Callable[[str], None], on_progress: Callable[[int, int], None]
) -> ModeRun:
    """Run *job*'s requests in padded batches.

    Raises:
        ConfigError: A setting or the workload is wrong.
        ModelError: The model cannot be fetched or loaded.
        UnsupportedModelError: Its weights are to be 8-bit, which ``generate`` does not do.
    """
    loaded = _load(job, on_phase)
    items = with_ids(job.items, loaded, max_model_len=loaded.max_model_len)
    kv_bytes = _kv_bytes_per_token(loaded.model)
    size = batch_size(items, loaded.model.config, kv_bytes, loaded.model.dtype.itemsize)
    on_phase(f"warming up; {size} of {len(items)} requests fit into one padded batch")
    generate_padded(loaded.model, items[:1])
    run = _Run(num_slots=size)
    reset_peak_rss()
    others = OtherCpu()
    for first in range(0, len(items), size):
        on_progress(run.num_tokens, first)
        run.batch(loaded.model, items[first : first + size], first=first, on_progress=on_progress)
    return ModeRun(
        mode=job.mode,
        num_slots=size,
        wall_s=run.served[-1].e2e_s,
        served=tuple(run.served),
        spans=run.board.spans(),
        steps=tuple(run.steps),
        preemptions=0,
        peak_rss_bytes=peak_rss_bytes(),
        other_cpu_share=others.share(),
        facts=facts_of(
            loaded,
            compute_dtype=str(loaded.model.dtype).removeprefix("torch."),
            kv_bytes_per_token=kv_bytes,
            num_kv_blocks=0,
            block_size=1,
        ),
    )


def _load(job: Job, on_phase: Callable[[str], None]) -> LoadedModel:
    loaded, _ = load_version(
        job.version,
        options=job.options,
        config_path=Path(job.config_path) if job.config_path is not None else None,
        on_phase=on_phase,
    )
    if loaded.version.dtype == "int8":
        raise UnsupportedModelError(
            model=loaded.version.name, reason="generate has no 8-bit weights; choose bfloat16"
        )
    return loaded


def batch_size(
    items: Sequence[Item], model_config: Any, kv_bytes_per_token: int, itemsize: int
) -> int:
    """Return how many of *items* a padded batch can hold: all of them, if memory allows.

    Counted are the rectangle of keys and values, and the widest layer of its prefill.
    """
    free = available_bytes()
    if free is None:
        return len(items)
    text = model_config.get_text_config()
    prompt = max(len(item.prompt_ids) for item in items)
    output = max(item.output_len for item in items)
    kv = (prompt + output) * kv_bytes_per_token
    layer = prompt * itemsize * (6 * text.hidden_size + 4 * getattr(text, "intermediate_size", 0))
    scores = text.num_attention_heads * prompt * prompt * 4
    logits = 2 * text.vocab_size * 4
    return max(1, min(len(items), int(_MEMORY_SHARE * free / (kv + layer + scores + logits))))


class _Run:
    """Batches so far; seconds since the first began."""

    def __init__(self, *, num_slots: int) -> None:
        self.started_s = time.monotonic()
        self.board = SlotBoard(num_slots=num_slots)
        self.served: list[Served] = []
        self.steps: list[Step] = []
        self.num_tokens = 0

    def batch(
        self,
        model: Any,
        items: Sequence[Item],
        *,
        first: int,
        on_progress: Callable[[int, int], None],
    ) -> None:
        """Run one batch whose first request has the number *first*."""
        stamps = [time.monotonic() - self.started_s]

        def step() -> None:
            stamps.append(time.monotonic() - self.started_s)
            self._note(items, stamps, first=first)
            on_progress(self.num_tokens, first)

        generate_padded(model, items, step)
        end_s = time.monotonic() - self.started_s
        self.served.extend(
            Served(
                num_prompt_tokens=len(item.prompt_ids),
                num_output_tokens=item.output_len,
                ttft_s=end_s,
                tpot_s=None,
                e2e_s=end_s,
            )
            for item in items
        )

    def _note(self, items: Sequence[Item], stamps: Sequence[float], *, first: int) -> None:
        """Take in the forward that ended with the last of *stamps*."""
        number = len(stamps) - 2
        start_s, end_s = stamps[-2:]
        works = [
            Work.PREFILL if number == 0 else Work.DECODE if number < item.output_len else Work.KEPT
            for item in items
        ]
        rows = [Row(first + index, work) for index, work in enumerate(works)]
        self.board.note(rows, start_s=start_s, end_s=end_s)
        self.num_tokens += sum(work is not Work.KEPT for work in works)
        width = max(len(item.prompt_ids) for item in items) if number == 0 else 1
        self.steps.append(
            Step(
                start_s=start_s,
                seconds=end_s - start_s,
                num_rows=len(items),
                num_tokens=len(items) * width,
                num_blocks=0,
            )
        )


def generate_padded(
    model: Any, items: Sequence[Item], on_step: Callable[[], None] = lambda: None
) -> None:
    """Run *items* as one padded batch to their longest output, greedy.

    Args:
        model: A transformers causal language model.
        items: Their prompts as ids.
        on_step: Called after each forward.
    """
    width = max(len(item.prompt_ids) for item in items)
    device = next(model.parameters()).device
    padded = [[0] * (width - len(item.prompt_ids)) + [*item.prompt_ids] for item in items]
    mask = [[0] * (width - len(item.prompt_ids)) + [1] * len(item.prompt_ids) for item in items]

    def watch(input_ids: torch.Tensor, _scores: Any, **_: Any) -> torch.Tensor:
        on_step()
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)

    with torch.inference_mode():
        model.generate(
            input_ids=torch.tensor(padded, device=device),
            attention_mask=torch.tensor(mask, device=device),
            max_new_tokens=max(item.output_len for item in items),
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            stopping_criteria=[watch],
        )


def _kv_bytes_per_token(model: Any) -> int:
    """Return what one token's keys and values take in the model's own cache."""
    ids = torch.tensor([[1, 2]], device=next(model.parameters()).device)
    with torch.inference_mode():
        # By place: the field has had two names.
        _, cache = model(input_ids=ids, use_cache=True, return_dict=False)
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    return int(held) // ids.shape[1]
