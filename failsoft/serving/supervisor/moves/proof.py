"""What is kept as proof that a slot runs what its pin says."""

import asyncio
import time
from collections.abc import Callable, Mapping

from failsoft.fallback.discovery import RunningEngine
from failsoft.pin_records import PinMove
from failsoft.serving.supervisor.moves.parts import MoveParts
from failsoft.serving.supervisor.moves.trial import TrialError, check_digest, reported_digest

_LOOK_S = 0.1


async def prove_slot(parts: MoveParts, slot: str, digest: str | None) -> dict[str, object]:
    """Wait until the engine at *slot* is ready and reports *digest*; return pid and digest.

    Waits for as long as its keeper goes on trying; the caller has the clock.

    Raises:
        TrialError: It was given up, or it runs another version.
    """
    while True:
        engine = _ready_engine(parts, slot)
        if engine is not None and digest is not None:
            try:
                reported = await reported_digest(engine, answer_s=parts.rules.answer_s)
            except TrialError:
                pass  # it has just ended, or hangs: its keeper sees to that
            else:
                check_digest(reported, digest)
                return {"pid": engine.pid, "digest": reported}
        await asyncio.sleep(_LOOK_S)


def _ready_engine(parts: MoveParts, slot: str) -> RunningEngine | None:
    """Return the engine at *slot*; None while it is not ready."""
    seated = parts.roster.seated(slot)
    if seated is None:
        raise TrialError("no ladder of the settings uses the slot any more")
    state = seated.keeper.state
    if state.phase == "gave_up":
        raise TrialError(f"its engine was given up: {state.last_exit}")
    engine = parts.finder.find(slot)
    if state.phase != "running" or not isinstance(engine, RunningEngine):
        return None
    return engine if engine.pid == state.pid else None


def with_seconds(
    proof: Mapping[str, object], move: PinMove, *, clock: Callable[[], float] = time.time
) -> dict[str, object]:
    """Return *proof* with the seconds that *move* has spent in each state so far.

    Args:
        proof: What is known.
        move: It is in its last state still.
        clock: UTC epoch seconds.
    """
    ends_ms = [*(step.at_ms for step in move.steps[1:]), int(clock() * 1000)]
    seconds: dict[str, float] = {}
    for step, end_ms in zip(move.steps, ends_ms, strict=True):
        name = step.state.value
        spent_s = max(0.0, (end_ms - step.at_ms) / 1000)  # the clock may have been put back
        seconds[name] = round(seconds.get(name, 0.0) + spent_s, 3)
    return {**proof, "seconds": seconds}
