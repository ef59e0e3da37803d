"""Runs plans on a model: pack, forward, sample. The only place that calls the model.

Whatever the model's code raises is translated here into a ForwardError, so that the
step loop can find out whose fault it was. One thread at a time.
"""

import logging
from typing import Any

import torch

from failsoft.engine.attention.dispatch import Backend, Step, step
from failsoft.engine.attention.kv_pool import KVPool
from failsoft.engine.attention.site import AttentionSite
from failsoft.engine.batch import PackRow, pack, rows_of
from failsoft.engine.row_results import row_results
from failsoft.engine.sequence import RowResult, StepPlan
from failsoft.errors import ForwardError

logger = logging.getLogger(__name__)


class ModelRunner:
    """A model whose attention goes through our sites, its KV pool and the backend.

    Args:
        model: A transformers causal language model set to our attention.
        sites: Its attention sites, in call order.
        pool: KV tensors of those sites.
        backend: Attends.
        device: Where the model is.
    """

    def __init__(
        self,
        *,
        model: Any,
        sites: tuple[AttentionSite, ...],
        pool: KVPool,
        backend: Backend,
        device: torch.device,
    ) -> None:
        self.pool = pool
        self.device = device
        self._model = model
        self._sites = sites
        self._backend = backend
        self._can_pick_logits = bool(model._supports_logits_to_keep())

    def run(self, plan: StepPlan) -> list[RowResult]:
        """Compute *plan* and sample the rows that are due; see ``step_loop.Runner``.

        Raises:
            ForwardError: The forward failed as a whole.
        """
        try:
            self.pool.scrub(list(plan.scrub))
            return row_results(plan, self.forward(rows_of(plan)))
        except Exception as exc:  # third-party model code may raise anything
            raise _translated(exc, num_rows=len(plan.rows)) from exc

    def forward(self, rows: list[PackRow]) -> torch.Tensor:
        """Return ``(num_wanted, vocab_size)`` logits, those of each row behind the last one's."""
        inputs = pack(rows, block_size=self.pool.block_size, device=self.device)
        context = Step(self._sites, self.pool, inputs.attention, self._backend)
        kwargs = {}
        if self._can_pick_logits:
            # Mid-prompt chunks want none; one row is the least a model computes.
            wanted = (
                inputs.logits_rows
                if len(inputs.logits_rows)
                else torch.zeros_like(inputs.input_ids[0, :1])
            )
            kwargs["logits_to_keep"] = wanted
        with torch.inference_mode(), step(context):
            logits: torch.Tensor = self._model(
                input_ids=inputs.input_ids,
                position_ids=inputs.position_ids,
                use_cache=False,
                **kwargs,
            ).logits[0]
        if not self._can_pick_logits:
            return logits[inputs.logits_rows]
        return logits[: len(inputs.logits_rows)]


def _translated(exc: Exception, *, num_rows: int) -> ForwardError:
    """Return the ForwardError for what a forward of *num_rows* rows raised."""
    is_memory = isinstance(exc, MemoryError | torch.OutOfMemoryError) or (
        isinstance(exc, RuntimeError) and "can't allocate memory" in str(exc)
    )
    if is_memory:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return ForwardError(f"a forward of {num_rows} rows ran out of memory", kind="out_of_memory")
    logger.error("a forward of %d rows raised", num_rows, exc_info=exc)
    return ForwardError(
        f"a forward of {num_rows} rows raised {type(exc).__name__}", kind="exception"
    )
