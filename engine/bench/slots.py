"""Who sat in which slot when: a runner that watches, and the spans it has seen.

A *slot* is a row's place in the forward; there are ``max_running``. A request keeps its slot
from its first forward to its last; one that was preempted may come back to another. Stamps
are ``time.monotonic()`` seconds.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from failsoft.engine.sequence import StepPlan
    from failsoft.engine.step_loop import Runner


class Work(StrEnum):
    """What a row's forward was good for."""

    PREFILL = "prefill"
    """A prompt or part of one; the last part yields the first token."""
    DECODE = "decode"
    """One more token that somebody asked for."""
    KEPT = "kept"
    """A token that is thrown away: the reply was complete already."""


class Row(NamedTuple):
    """One request in one forward."""

    request: int
    """Its number in the workload."""
    work: Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A request in a slot, without a forward between that it was not part of."""

    slot: int
    request: int
    work: Work
    from_s: float
    to_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One forward."""

    start_s: float
    seconds: float
    num_rows: int
    num_tokens: int
    num_blocks: int
    """KV blocks held by its rows."""


class SlotBoard:
    """Seats the rows of one forward after another, and remembers."""

    def __init__(self, *, num_slots: int) -> None:
        self._holder: list[int | None] = [None] * num_slots
        self._slot_of: dict[int, int] = {}
        self._open: dict[int, Span] = {}
        """The span of each slot that was in the last forward."""
        self._closed: list[Span] = []

    def note(self, rows: Sequence[Row], *, start_s: float, end_s: float) -> None:
        """Take in a forward of *rows* that ran from *start_s* to *end_s*."""
        present = {row.request for row in rows}
        still_open: dict[int, Span] = {}
        for row in rows:
            slot = self._seat(row.request, present)
            span = self._open.pop(slot, None)
            begun_s = start_s
            if span is not None and (span.request, span.work) == (row.request, row.work):
                begun_s = span.from_s
            elif span is not None:
                self._closed.append(span)
            still_open[slot] = Span(
                slot=slot, request=row.request, work=row.work, from_s=begun_s, to_s=end_s
            )
        self._closed.extend(self._open.values())
        self._open = still_open

    def spans(self) -> tuple[Span, ...]:
        """Return every span so far, by time."""
        return tuple(sorted([*self._closed, *self._open.values()], key=lambda span: span.from_s))

    def _seat(self, request: int, present: set[int]) -> int:
        if (slot := self._slot_of.get(request)) is not None:
            return slot
        # Its last holder has ended, or was preempted: whoever holds a slot and is not here.
        slot = next(
            slot
            for slot, holder in enumerate(self._holder)
            if holder is None or holder not in present
        )
        if (before := self._holder[slot]) is not None:
            del self._slot_of[before]
        self._holder[slot] = request
        self._slot_of[request] = slot
        return slot


class WatchedRunner:
    """Runs plans on another runner and notes who was in them; the engine's thread owns it.

    Args:
        runner: Computes the plans.
        num_slots: Rows of a forward at most.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        runner: "Runner",
        *,
        num_slots: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runner = runner
        self._clock = clock
        self._num_slots = num_slots
        self.forget()

    def forget(self) -> None:
        """Begin anew, after a warm-up."""
        self.board = SlotBoard(num_slots=self._num_slots)
        self.steps: list[Step] = []
        self.numbers: dict[str, int] = {}
        """Request id to number in the workload; others are not noted."""
        self.ended: set[str] = set()
        """Requests whose reply is complete: what they still decode is thrown away."""

    def run(self, plan: "StepPlan") -> list[Any]:
        """Compute *plan*; see ``step_loop.Runner``."""
        start_s = self._clock()
        results = list(self._runner.run(plan))
        end_s = self._clock()
        rows = [
            Row(self.numbers[row.sequence.request_id], self._work_of(row))
            for row in plan.rows
            if row.sequence.request_id in self.numbers
        ]
        if rows:
            self.board.note(rows, start_s=start_s, end_s=end_s)
            step = Step(
                start_s=start_s,
                seconds=end_s - start_s,
                num_rows=len(plan.rows),
                num_tokens=plan.num_tokens,
                num_blocks=len({number for row in plan.rows for number in row.sequence.blocks}),
            )
            self.steps.append(step)
        return results

    def _work_of(self, row: Any) -> Work:
        if row.sequence.request_id in self.ended:
            return Work.KEPT
        return Work.DECODE if row.sequence.is_decoding else Work.PREFILL
