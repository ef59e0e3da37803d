"""Engines of a real ``failsoft up`` die, or fall silent, under callers: what these meet.

Real weights, real processes, SIGKILL and SIGSTOP.
"""

import signal
import time
from collections.abc import Iterator

import httpx2

from benchmarks.front_callers import Crowd, Seen, ask, crowd
from benchmarks.proof import Line, exactly
from benchmarks.up_session import UpSession, wait_for
from failsoft.config.schema import BUILT_IN_FILE, load_settings

MAX_FIRST_TOKEN_S = 1.0
SHORT_FIRST_TOKEN_S = 4.0
"""What CI allows, whose machines differ: without 8-bit instructions rung 2 alone takes most of 1 s.
"""
BACK_S = 120.0
WARM_S = 3.0
COUNTRIES = ("France", "Italy", "Spain", "Poland", "Greece", "Japan", "Egypt", "Norway")
"""Answered in a sentence that ends by itself: only such replies are kept."""


def measure_kill(up: UpSession, *, is_short: bool) -> Iterator[Line]:
    """Yield what ``kill -9`` of the primary costs callers."""
    num_rounds = 1 if is_short else 5
    within_s = SHORT_FIRST_TOKEN_S if is_short else MAX_FIRST_TOKEN_S
    for number in range(1, num_rounds + 1):
        yield from _struck(
            up,
            signal.SIGKILL,
            what=f"kill -9 of the primary, round {number} of {num_rounds}",
            within_s=within_s,
        )


def measure_silence(up: UpSession) -> Iterator[Line]:
    """Yield what SIGSTOP of the primary costs: it is alive and says nothing."""
    timeouts = load_settings(BUILT_IN_FILE).ladders["chat"].timeouts
    yield from _struck(
        up,
        signal.SIGSTOP,
        what="SIGSTOP of the primary",
        within_s=timeouts.first_token_s + MAX_FIRST_TOKEN_S,
    )


def _struck(up: UpSession, number: signal.Signals, *, what: str, within_s: float) -> Iterator[Line]:
    """Strike the primary under four callers and judge what they met."""
    with crowd(up.api_url) as callers:
        _wait_answer(callers, "primary", time.monotonic(), BACK_S)
        time.sleep(WARM_S)
        struck_s = time.monotonic()
        old_pid = up.kill("primary", number)
        _wait_answer(callers, "small", struck_s, within_s + 30)
        back_s = _back_after(up, callers, old_pid, struck_s)
    calls = callers.after(struck_s)
    first_s = min(
        (c.first_s - struck_s for c in calls if c.rung == "small" and c.first_s is not None),
        default=float("inf"),
    )
    yield Line(
        must_hold=f"{what}, 4 callers of 16 tokens: first token from rung 2 in <= {within_s:g} s",
        figure=f"{first_s:.2f} s; {_tally(calls)}",
        has_passed=first_s <= within_s,
    )
    failed = [call for call in calls if call.failed_before_text]
    yield exactly(f"{what}: failed calls that had not begun to stream", len(failed), 0)
    cut = [call for call in calls if call.first_s is not None and not call.is_whole]
    yield exactly(
        f"{what}: of {len(cut)} streams cut after their first text, those without a typed error",
        sum(call.error is None for call in cut),
        0,
    )
    yield Line(
        must_hold=f"{what}: the primary answers again by itself",
        figure=f"after {back_s:.1f} s",
        has_passed=back_s <= BACK_S,
    )


def _back_after(up: UpSession, callers: Crowd, old_pid: int, struck_s: float) -> float:
    """Return the seconds until another primary has answered a caller."""
    wait_for(lambda: up.engine_pid("primary") != old_pid or None, BACK_S, "another primary")
    _wait_answer(callers, "primary", time.monotonic(), BACK_S)
    return time.monotonic() - struck_s


def _wait_answer(callers: Crowd, rung: str, since_s: float, limit_s: float) -> None:
    def has_answered() -> bool | None:
        calls = callers.after(since_s)
        return any(c.rung == rung and c.started_s >= since_s and c.is_whole for c in calls) or None

    wait_for(has_answered, limit_s, f"an answer from {rung}")


def _tally(calls: list[Seen]) -> str:
    rungs = sorted({call.rung or f"status {call.status}" for call in calls})
    counts = (
        f"{sum((call.rung or f'status {call.status}') == rung for call in calls)} {rung}"
        for rung in rungs
    )
    return ", ".join(counts)


def measure_both_dead(up: UpSession) -> Iterator[Line]:
    """Yield what is answered while no engine lives, and that the front outlives it."""
    up.wait_running("primary", "small")
    with httpx2.Client(timeout=120, trust_env=False) as client:
        asked = [f"What is the capital of {country}?" for country in COUNTRIES]
        known = [ask(client, up.api_url, words, max_tokens=64) for words in asked]
        front_pid = up.front_pid()
        time.sleep(0.5)  # the kept replies reach the store
        for slot in ("primary", "small"):
            up.kill(slot)
        again = [ask(client, up.api_url, words, max_tokens=64) for words in asked]
        fresh = [ask(client, up.api_url, f"New question {n}?", max_tokens=12) for n in range(8)]
        yield from _judge_dead(known, again, fresh)
        struck_s = time.monotonic()

        def answers() -> Seen | None:
            seen = ask(client, up.api_url, f"Are you back at {time.monotonic()}?", max_tokens=4)
            return seen if seen.rung in ("primary", "small") else None

        back = wait_for(answers, BACK_S, "an engine")
        yield Line(
            must_hold="kill -9 of both: an engine answers again, the front never restarted",
            figure=f"{back.rung} after {time.monotonic() - struck_s:.1f} s, front "
            f"{'the same' if up.front_pid() == front_pid else 'ANOTHER'} process",
            has_passed=up.front_pid() == front_pid,
        )


def _judge_dead(known: list[Seen], again: list[Seen], fresh: list[Seen]) -> Iterator[Line]:
    kept = [
        new.rung == "cache" and new.age_s is not None and new.text == old.text
        for old, new in zip(known, again, strict=True)
        if old.has_stopped
    ]
    ages = [call.age_s for call in again if call.age_s is not None]
    yield Line(
        must_hold="kill -9 of both: what was answered before comes from the cache, with its age",
        figure=f"{sum(kept)} of {len(kept)}, ages {min(ages, default=0):.1f} to "
        f"{max(ages, default=0):.1f} s",
        has_passed=bool(kept) and all(kept),
    )
    honest = [call.status == 503 and bool((call.error or {}).get("message")) for call in fresh]
    slowest_s = max((call.ended_s or 0) - call.started_s for call in fresh)
    statuses = sorted({call.status or 0 for call in fresh})
    yield Line(
        must_hold="kill -9 of both: all else gets an honest 503",
        figure=f"{sum(honest)} of {len(honest)} (statuses {statuses}), the slowest in "
        f"{slowest_s:.2f} s",
        has_passed=all(honest),
    )
