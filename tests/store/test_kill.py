"""``kill -9`` loses at most the last 250 ms of records, and corrupts nothing."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from failsoft.config.settings import StoreConfig
from failsoft.store import Store

ROOT = Path(__file__).parents[2]
LOST_S = 0.75
"""It is 250 ms for a writer that gets its share of a core; tests share theirs."""

# Records a call and its attempt, then writes the call's number to its own log and syncs it:
# what the log holds was recorded before, whatever happens next.
VICTIM = """
import os, sys, time
from failsoft.call_records import AttemptOutcome, AttemptRecord, CallOutcome, CallRecord
from failsoft.config.settings import StoreConfig
from failsoft.store import Store

store = Store(StoreConfig(url=sys.argv[1]))
log = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
life = sys.argv[3]
num = 0
while True:
    lines = []
    for _ in range(int(sys.argv[4])):
        call_id = f"{life}-{num}"
        store.recorder.record_attempt(AttemptRecord(
            call_id=call_id, attempt=0, rung=0, endpoint="e", outcome=AttemptOutcome.OK,
            started_at_ms=num, was_sent=True, total_s=0.1,
        ))
        store.recorder.record_call(CallRecord(
            call_id=call_id, ladder="chat", tenant="", started_at_ms=num, outcome=CallOutcome.OK,
            served_rung=0, served_endpoint="e", version_digest=None, num_attempts=1, ttft_s=None,
            e2e_s=0.1, is_stream=False, is_complete=True,
        ))
        lines.append(f"{call_id} {time.clock_gettime(time.CLOCK_MONOTONIC)}\\n")
        num += 1
    os.write(log, "".join(lines).encode())
    os.fsync(log)
    time.sleep(0.005)
"""


class Logged(NamedTuple):
    """One line of the victim's own log."""

    call_id: str
    at_s: float


def live_and_die(
    url: str, log: Path, life: str, *, burst: int, for_s: float
) -> tuple[float, list[Logged]]:
    """Run a victim, kill it *for_s* after its first record; return when, and what it logged."""
    victim = subprocess.Popen(
        [sys.executable, "-c", VICTIM, url, str(log), life, str(burst)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    while not log.exists() or log.stat().st_size == 0:
        assert victim.poll() is None
        time.sleep(0.01)
    time.sleep(for_s)
    killed_s = time.clock_gettime(time.CLOCK_MONOTONIC)
    victim.send_signal(signal.SIGKILL)
    victim.wait(timeout=10)
    lines = log.read_text().splitlines()
    return killed_s, [Logged(line.split()[0], float(line.split()[1])) for line in lines]


def test_a_killed_process_loses_its_last_moments_at_most(tmp_path: Path) -> None:
    """Four lives in one file, each killed at a random moment under a steady load.

    One call at a time fills no batch of 500 rows in time, so its age must get it
    written; bursts of 20 fill batches. Checked against a log that the victim synced
    itself: every call that was logged some time before the kill is there, with its
    attempt, and nothing has a gap.
    """
    config = StoreConfig(url=f"sqlite:///{tmp_path}/failsoft.db")
    for life, burst in (("a", 1), ("b", 20), ("c", 1), ("d", 20)):
        log = tmp_path / f"log-{life}"
        killed_s, logged = live_and_die(
            config.url, log, life, burst=burst, for_s=random.uniform(1.2, 2.0)
        )

        with Store(config) as store:
            with store._database.read() as connection:
                check = connection.exec_driver_sql("PRAGMA integrity_check").scalar()
            calls = store.reader.calls(limit=10**9)
            kept = [call.call_id for call in calls if call.call_id.startswith(life)]
            attempts = store.reader.stats().num_rows["attempts"]

        due = [entry.call_id for entry in logged if entry.at_s < killed_s - LOST_S]
        assert check == "ok"
        assert len(due) > 10
        assert set(due) <= set(kept)
        assert set(kept) == {f"{life}-{i}" for i in range(len(kept))}
        assert attempts - len(calls) in (0, 1)  # the last call's attempt goes ahead of it
