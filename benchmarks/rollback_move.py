"""A pin is set and rolled back under callers: what they met, and who really answered them.

Real weights, greedy. Each prompt's text is known from each version alone, asked while nothing
else could answer; so a reply tells by its own words which weights wrote it.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

import httpx2

from benchmarks.front_callers import WAIT_S, Seen, ask, crowd
from benchmarks.proof import Line, exactly
from benchmarks.rollback_rig import SLOT, V2, Moving, moving_up
from failsoft.pin_records import MoveState, PinMove

MAX_ROLLBACK_S = 30.0
_BUSY_S = 120.0
"""What CI allows in place of it: a machine with other work is no measure."""
_TOKENS = 16
_SETTLE_S = 2.0
PROMPTS = tuple(
    f"What is the capital of {country}?"
    for country in ("France", "Italy", "Spain", "Poland", "Greece", "Japan", "Egypt", "Norway")
)


def measure(*, is_short: bool) -> Iterator[Line]:
    """Yield what callers met while a pin went there and back."""
    with moving_up() as moving:
        first = moving.serving().version_digest
        texts = {first: _texts(moving)}
        with crowd(moving.up.api_url, max_tokens=_TOKENS, words=_prompt) as callers:
            time.sleep(_SETTLE_S)
            there = _move(moving, "pin", "set", SLOT, V2, "--why", "proof", "--accept-unproven")
            second = moving.serving().version_digest
            texts[second] = _texts(moving)
            back = _move(moving, "rollback", SLOT, "--why", "proof")
            back_s = time.monotonic()
            time.sleep(_SETTLE_S)
        yield from _judge_moves(there, back, limit_s=_BUSY_S if is_short else MAX_ROLLBACK_S)
        yield from _judge_calls(callers.seen, texts)
        late = [call for call in callers.seen if call.started_s > back_s]
        yield exactly(
            f"of {len(late)} calls begun after the rollback was confirmed, those that another "
            "version answered",
            sum(call.version != first for call in late),
            0,
        )


def _prompt(number: int) -> str:
    return PROMPTS[number % len(PROMPTS)]


def _move(moving: Moving, *words: str) -> PinMove:
    """Move the pin by failsoft's own command, and return how that ended."""
    before = moving.newest()
    process = moving.cli(*words)
    said, _ = process.communicate()
    move = moving.newest()
    if process.returncode != 0 or move.move_id == before.move_id:
        raise RuntimeError(f"failsoft {' '.join(words)}: {said.strip()}")
    return move


def _texts(moving: Moving) -> dict[str, str]:
    """Return what the version that serves now says to each prompt."""
    with httpx2.Client(timeout=WAIT_S, trust_env=False) as client:
        calls = [ask(client, moving.up.api_url, p, max_tokens=_TOKENS) for p in PROMPTS]
    for call in calls:
        if not call.is_whole:
            raise RuntimeError(f"what a version says alone is not known: {call.error}")
    return {call.asked: call.text for call in calls}


def _judge_moves(there: PinMove, back: PinMove, *, limit_s: float) -> Iterator[Line]:
    for what, move in (("pin set", there), ("rollback", back)):
        took_s = ((move.ended_at_ms or 0) - move.asked_at_ms) / 1000
        steps = zip(move.steps, move.steps[1:], strict=False)
        parts = ", ".join(f"{a.state.value} {(b.at_ms - a.at_ms) / 1000:.1f}" for a, b in steps)
        limit = f" within {limit_s:g} s" if move is back else ""
        yield Line(
            must_hold=f"{what} under 4 callers: from asked to confirmed{limit}",
            figure=f"{move.state.value} after {took_s:.1f} s ({parts})",
            has_passed=move.state is MoveState.CONFIRMED and (move is there or took_s <= limit_s),
        )


def _judge_calls(
    calls: Sequence[Seen], texts: Mapping[str | None, Mapping[str, str]]
) -> Iterator[Line]:
    failed = [call for call in calls if not call.is_whole or call.error is not None]
    why = sorted({str((call.error or {}).get("code") or call.error) for call in failed})
    yield Line(
        must_hold=f"4 callers, no other rung, {len(calls)} calls: failed ones = 0",
        figure=f"{len(failed)}{' ' if why else ''}{', '.join(why)}",
        has_passed=not failed,
    )
    whole = [call for call in calls if call.is_whole]
    wrong = [call for call in whole if _writer(call, texts) != call.version]
    same = sum(call.text in (known[call.asked] for known in texts.values()) for call in whole)
    counts = ", ".join(
        f"{sum(call.version == digest for call in whole)} of {(digest or '')[:12]}"
        for digest in texts
    )
    yield exactly(
        f"replies ({counts}) whose digest is not that of the weights that wrote them, told by "
        f"their text ({same} of {len(whole)} are word for word what that version says alone)",
        len(wrong),
        0,
    )
    yield Line(
        must_hold="both versions answered callers",
        figure=counts,
        has_passed=all(any(call.version == digest for call in whole) for digest in texts),
    )


def _writer(call: Seen, texts: Mapping[str | None, Mapping[str, str]]) -> str | None:
    """Return the version whose own text to this prompt *call* got, or begins most like."""

    def likeness(digest: str | None) -> int:
        pairs = zip(call.text, texts[digest][call.asked], strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    return max(texts, key=likeness)
