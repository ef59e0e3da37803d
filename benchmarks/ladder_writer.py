"""The record writer under 5,000 calls a second: what its caller feels, and what a kill costs.

A child process paces the calls (one call row and one attempt row each) on the open-loop
schedule: a call's latency counts from when it was due, so waiting for the interpreter's
lock counts too. It records nothing first, then records, then nothing again; both figures
come from one run. At the end it goes on, writes what it recorded into a log of its own
and syncs that, until it is killed with SIGKILL.

Run as a module it is that child: ``python -m benchmarks.ladder_writer URL LOG SECONDS``.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.proof import Line, exactly
from failsoft.call_records import AttemptOutcome, AttemptRecord, CallOutcome, CallRecord, Recorder
from failsoft.config.settings import StoreConfig
from failsoft.fallback.call import new_call_id
from failsoft.store import Store

CALLS_PER_S = 5_000
TICK_S = 0.001
MAX_P99_MS = 1.0
MAX_LOST_S = 0.25
MAX_FLUSH_S = 1.0
"""A queue that takes longer to empty was growing."""
DEAD_AFTER_S = 1.3
"""How long the child runs with its log before it is killed."""


class Nobody:
    """A recorder that keeps nothing: recording off."""

    def record_call(self, record: CallRecord, /) -> None:
        """Drop it."""

    def record_attempt(self, record: AttemptRecord, /) -> None:
        """Drop it."""


class Phase(NamedTuple):
    """What one stretch of the child's life saw."""

    num_calls: int
    seconds: float
    p50_ms: float
    p99_ms: float


class Logged(NamedTuple):
    """One line of the child's own log."""

    call_id: str
    at_s: float


def record_one(recorder: "Recorder | Nobody") -> str:
    """Record one call and its attempt; return the call's id."""
    now_ms = int(time.time() * 1000)
    call_id = new_call_id(now_ms)
    recorder.record_attempt(
        AttemptRecord(
            call_id=call_id,
            attempt=0,
            rung=0,
            endpoint="primary",
            outcome=AttemptOutcome.OK,
            started_at_ms=now_ms,
            was_sent=True,
            total_s=0.8,
            ttft_s=0.1,
            http_status=200,
            version_digest="d" * 64,
            num_prompt_tokens=900,
            num_output_tokens=200,
            cost=0.001,
        )
    )
    recorder.record_call(
        CallRecord(
            call_id=call_id,
            ladder="chat",
            tenant="acme",
            started_at_ms=now_ms,
            outcome=CallOutcome.OK,
            served_rung=0,
            served_endpoint="primary",
            version_digest="d" * 64,
            num_attempts=1,
            ttft_s=0.1,
            e2e_s=0.8,
            is_stream=True,
            is_complete=True,
            cost=0.001,
            num_prompt_tokens=900,
            num_output_tokens=200,
        )
    )
    return call_id


def run_phase(recorder: "Recorder | Nobody", seconds: float) -> Phase:
    """Record at the pace for *seconds*."""
    gc.collect()  # what the imports left takes 50 ms, which any phase would pay by chance
    late_s: list[float] = []
    began_s = time.perf_counter()
    num_ticks = int(seconds / TICK_S)
    per_tick = int(CALLS_PER_S * TICK_S)
    for tick in range(num_ticks):
        due_s = began_s + tick * TICK_S
        while (wait_s := due_s - time.perf_counter()) > 0:
            time.sleep(wait_s)
        for _ in range(per_tick):
            record_one(recorder)
            late_s.append(time.perf_counter() - due_s)
    took_s = time.perf_counter() - began_s
    late_s.sort()
    at = [late_s[int(share * len(late_s))] * 1000 for share in (0.5, 0.99)]
    return Phase(len(late_s), took_s, *at)


def live(url: str, log: Path, seconds: float) -> None:
    """Be the child: measure, print one line of JSON, then record and log until killed."""
    store = Store(StoreConfig(url=url, queue_records=200_000))
    off_s = max(1.0, seconds / 6)
    phases = {"before": run_phase(Nobody(), off_s), "on": run_phase(store.recorder, seconds)}
    ended_s = time.monotonic()
    store.flush(30)
    flush_s = time.monotonic() - ended_s
    stats = store.stats()
    phases["after"] = run_phase(Nobody(), off_s)
    seen = {
        "phases": phases,
        "flush_s": flush_s,
        "written": dict(stats.written_total),
        "dropped": dict(stats.dropped_total),
    }
    print(json.dumps(seen), flush=True)
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while True:
        lines = []
        for _ in range(25):
            call_id = record_one(store.recorder)
            lines.append(f"{call_id} {time.clock_gettime(time.CLOCK_MONOTONIC)}\n")
        os.write(handle, "".join(lines).encode())
        os.fsync(handle)
        time.sleep(25 / CALLS_PER_S)


def measure(*, is_short: bool) -> Iterator[Line]:
    """Run the child, kill it, and read what it left."""
    seconds = 6.0 if is_short else 60.0
    with tempfile.TemporaryDirectory() as folder:
        url, log = f"sqlite:///{folder}/failsoft.db", Path(folder) / "log"
        line = [sys.executable, "-m", "benchmarks.ladder_writer", url, str(log), str(seconds)]
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            seen = json.loads(child.stdout.readline())
            yield from _judge_pace(seen, seconds)
            time.sleep(DEAD_AFTER_S)
            killed_s = time.clock_gettime(time.CLOCK_MONOTONIC)
            child.send_signal(signal.SIGKILL)
        yield from _judge_kill(url, log, killed_s, num_before=seen["written"]["call"])


def _judge_pace(seen: dict[str, Any], seconds: float) -> Iterator[Line]:
    on, before, after = (Phase(*seen["phases"][name]) for name in ("on", "before", "after"))
    rate = on.num_calls / on.seconds
    written, dropped = seen["written"], sum(seen["dropped"].values())
    is_whole = written.get("call") == written.get("attempt") == on.num_calls
    yield Line(
        must_hold=f"the writer takes {CALLS_PER_S} calls/s, call and attempt rows, for "
        f"{seconds:.0f} s, and drops none",
        figure=f"{rate:.0f} calls/s, {written} written, {dropped} dropped, the queue "
        f"empty {seen['flush_s']:.2f} s after the last",
        has_passed=rate >= 0.99 * CALLS_PER_S
        and is_whole
        and not dropped
        and seen["flush_s"] < MAX_FLUSH_S,
    )
    off_ms = (before.p99_ms + after.p99_ms) / 2
    yield Line(
        must_hold=f"caller p99 within {MAX_P99_MS:g} ms of recording off, in the same run",
        figure=f"p99 {on.p99_ms:.2f} ms on, {before.p99_ms:.2f} and {after.p99_ms:.2f} ms off "
        f"before and after; p50 {on.p50_ms:.2f} on, {before.p50_ms:.2f} off",
        has_passed=on.p99_ms - off_ms <= MAX_P99_MS,
    )


def _judge_kill(url: str, log: Path, killed_s: float, *, num_before: int) -> Iterator[Line]:
    lines = log.read_text().rsplit("\n", 1)[0].splitlines()
    logged = [Logged(call_id, float(at)) for call_id, at in (line.split() for line in lines)]
    with Store(StoreConfig(url=url)) as store:
        calls = {call.call_id for call in store.reader.calls(limit=num_before + len(logged) + 1000)}
        rows = store.reader.stats().num_rows
    lost = [entry for entry in logged if entry.call_id not in calls]
    lost_s = max((killed_s - entry.at_s for entry in lost), default=0.0)
    yield Line(
        must_hold=f"kill -9 loses at most the last {MAX_LOST_S * 1000:.0f} ms, against the "
        "caller's own synced log",
        figure=f"{len(lost)} of {len(logged)} logged calls lost, the oldest "
        f"{lost_s * 1000:.0f} ms before the kill",
        has_passed=lost_s <= MAX_LOST_S and len(logged) > 1000,
    )
    yield exactly("calls without their attempt after the kill", _orphans(url), 0)
    yield Line(
        must_hold="the database is whole after the kill",
        figure=f"integrity_check says {_integrity(url)}, {rows['calls']} call rows",
        has_passed=_integrity(url) == "ok",
    )


def _ask(url: str) -> Callable[[str], object]:
    import sqlite3

    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    return lambda sql: connection.execute(sql).fetchone()[0]


def _integrity(url: str) -> object:
    return _ask(url)("PRAGMA integrity_check")


def _orphans(url: str) -> int:
    sql = "SELECT count(*) FROM calls WHERE call_id NOT IN (SELECT call_id FROM attempts)"
    return int(str(_ask(url)(sql)))


if __name__ == "__main__":
    live(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
