"""A rollback that is asked while the move before it has switched and still drains.

An operator sees what a version does in the moment in which callers meet it: then it must not be
waited for until the last long answer of the old engine has ended.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2

from benchmarks.front_callers import WAIT_S, Seen, ask, crowd
from benchmarks.proof import Line, exactly
from benchmarks.rollback_rig import SLOT, V2, Moving, moving_up
from failsoft.pin_records import MoveState, PinMove

_STORY_TOKENS = 90
"""It ends within a ladder's own 30 s beside the callers and two engines that load."""
_MAX_S = 60.0
"""Three engines share the machine meanwhile: twice what a rollback has that comes later."""
_TOKENS = 16
_SETTLE_S = 8.0


def measure() -> Iterator[Line]:
    """Yield what callers, a long answer and the operator met."""
    with moving_up() as moving:
        first = moving.serving().version_digest
        with crowd(moving.up.api_url, max_tokens=_TOKENS) as callers, ThreadPoolExecutor() as pool:
            time.sleep(_SETTLE_S)
            before = moving.newest()
            setting = moving.ask_set(V2)
            there = moving.wait_state(moving.wait_new(before), MoveState.SMOKING)
            story = pool.submit(_tell_a_story, moving)
            there = moving.wait_state(there, MoveState.DRAINING)
            was_draining = there.state is MoveState.DRAINING
            asked_s = time.monotonic()
            rollback = moving.cli("rollback", SLOT, "--why", "proof")
            said, _ = rollback.communicate()
            confirmed_s = time.monotonic()
            setting.communicate()
            time.sleep(_SETTLE_S)
        long = story.result()
        back = moving.newest()
        yield _judge_move(moving.now(there), back, confirmed_s - asked_s, said, was_draining)
        yield _judge_story(long, first, asked_s)
        failed = [call for call in callers.seen if not call.is_whole]
        yield exactly(
            f"4 callers, no other rung, {len(callers.seen)} calls: failed", len(failed), 0
        )
        late = [call for call in callers.seen if call.started_s > confirmed_s]
        yield exactly(
            f"of {len(late)} calls begun after it was confirmed, answered by another version",
            sum(call.version != first for call in late),
            0,
        )


def _tell_a_story(moving: Moving) -> Seen:
    with httpx2.Client(timeout=WAIT_S, trust_env=False) as client:
        words = "Tell me a very long story about a lighthouse."
        return ask(client, moving.up.api_url, words, max_tokens=_STORY_TOKENS)


def _judge_move(
    there: PinMove, back: PinMove, took_s: float, said: str, was_draining: bool
) -> Line:
    steps = zip(back.steps, back.steps[1:], strict=False)
    parts = ", ".join(f"{a.state.value} {(b.at_ms - a.at_ms) / 1000:.1f}" for a, b in steps)
    is_back = back.kind.goes_back and back.state is MoveState.CONFIRMED
    last = said.strip().splitlines()[-1:]
    return Line(
        must_hold="rollback while the move before it drains, 4 callers, a long answer: confirmed "
        f"within {_MAX_S:g} s",
        figure=f"{took_s:.1f} s by the operator's clock (then {parts}); the move before it "
        f"{there.state.value}{'' if is_back else f', {last}'}",
        has_passed=was_draining and is_back and took_s <= _MAX_S,
    )


def _judge_story(story: Seen, first: str | None, asked_s: float) -> Line:
    ended_s = story.ended_s or 0.0
    return Line(
        must_hold="the long answer of the engine that leaves ends whole, by its own version",
        figure=f"{'whole' if story.is_whole else story.error}, {ended_s - asked_s:.1f} s after the "
        "rollback was asked",
        has_passed=story.is_whole and story.version == first and ended_s > asked_s,
    )
