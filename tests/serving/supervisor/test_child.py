"""A child process: what it inherits, what it says, how it ends."""

import asyncio
import os
import pty
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from failsoft.serving.supervisor import child as child_module
from failsoft.serving.supervisor.child import Child, Exit, Launch, start
from failsoft.serving.supervisor.text import Piece
from tests.engine.http.rig import wait_until


def run(
    code: str,
    *,
    columns: int | None = None,
    signals: Sequence[signal.Signals] = (),
    launch: Launch | None = None,
) -> tuple[Exit, list[str]]:
    """Run *code* in a child, signal it once it says ``up``; return its end and its lines."""
    lines: list[str] = []
    is_up = asyncio.Event()

    def hear(piece: Piece) -> None:
        if piece.text == "up":
            is_up.set()
        if piece.is_line:
            lines.append(piece.text)

    async def live() -> Exit:
        reading, writing = os.pipe()
        child = await start(
            launch or Launch(argv=(sys.executable, "-c", code)),
            environ=os.environ,
            lifeline_fd=reading,
            on_piece=hear,
            columns=columns,
        )
        try:
            if isinstance(child, Exit):
                return child
            if signals:
                await asyncio.wait_for(is_up.wait(), 10)
                for number in signals:
                    child.kill() if number == signal.SIGKILL else child.send(number)
            return await asyncio.wait_for(child.wait(), 10)
        finally:
            os.close(reading)
            os.close(writing)

    return asyncio.run(live()), lines


def test_a_traceback_is_heard_to_its_last_line() -> None:
    """Nothing of it is lost when the process is gone."""
    exit_, lines = run("import sys; print('out'); raise ValueError('why it died')")

    assert exit_ == Exit(code=1, last_line="ValueError: why it died")
    assert exit_.words == "exit 1"
    assert lines[0] == "Traceback (most recent call last):"
    assert "out" not in lines


def test_it_has_a_terminal_where_the_supervisor_has_one() -> None:
    """As wide as what is left beside its name."""
    code = "import os, sys; print(os.isatty(2), os.get_terminal_size(2).columns, file=sys.stderr)"

    assert run(code, columns=61)[1] == ["True 61"]


def test_it_leads_a_group_of_its_own_without_input() -> None:
    """Ctrl-C in a terminal must reach the supervisor alone."""
    code = "import os, sys; print(os.getpgrp() == os.getpid(), sys.stdin.read(), file=sys.stderr)"

    assert run(code)[1] == ["True "]


def test_what_it_started_does_not_outlive_it() -> None:
    """And is not waited for, though it holds the same stderr."""
    code = (
        "import os, subprocess, sys;"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        "print(p.pid, file=sys.stderr, flush=True); os._exit(3)"
    )

    exit_, lines = run(code)

    assert exit_.code == 3
    status = Path(f"/proc/{lines[0]}/stat")
    assert wait_until(lambda: not status.exists() or status.read_text().split()[2] == "Z")


@pytest.mark.parametrize(
    ("number", "words"),
    [(signal.SIGTERM, "exit -15 (SIGTERM)"), (signal.SIGKILL, "exit -9 (SIGKILL)")],
)
def test_a_signal_is_named(number: signal.Signals, words: str) -> None:
    """People should not have to look it up."""
    code = "import sys, time; print('up', file=sys.stderr, flush=True); time.sleep(60)"

    assert run(code, signals=[number])[0].words == words


def test_a_command_that_is_not_there_is_an_end_like_others() -> None:
    """Such as a Python that was upgraded away under a running supervisor."""
    exit_, _ = run("", launch=Launch(argv=("/no/such/python",)))

    assert exit_.code is None
    assert exit_.words == "it cannot be started"
    assert "No such file" in exit_.last_line


def test_it_inherits_what_it_was_given_and_nothing_else() -> None:
    """Variables, and open files under their numbers."""
    reading, writing = os.pipe()
    code = (
        "import os, sys;"
        f"os.write({writing}, os.environ['TOKEN'].encode());"
        "lifeline = int(os.environ['FAILSOFT_LIFELINE_FD']);"
        "fds = {int(n) for n in os.listdir('/proc/self/fd')};"
        f"print(sorted(fds - {{0, 1, 2, {writing}, lifeline}})[:-1], file=sys.stderr)"
    )
    launch = Launch(
        argv=(sys.executable, "-c", code), environ={"TOKEN": "s3cret"}, fds=(writing,), niceness=2
    )

    exit_, lines = run("", launch=launch)

    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        assert file.read() == b"s3cret"
    assert (exit_.code, lines) == (0, ["[]"])
    assert "s3cret" not in repr(launch)


def test_where_no_terminal_can_be_had_it_gets_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container without /dev/ptmx: bars do not show, and all else works."""

    def refuse() -> tuple[int, int]:
        raise OSError("out of pty devices")

    monkeypatch.setattr(pty, "openpty", refuse)
    code = "import os, sys; print(os.isatty(2), file=sys.stderr)"

    assert run(code, columns=61)[1] == ["False"]


def test_without_a_pipe_for_its_words_it_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Out of open files: an end like others, tried again later, and not the supervisor's own."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(child_module, "ChildOutput", refuse)

    exit_, _ = run("")

    assert (exit_.code, exit_.words) == (None, "it cannot be started")
    assert "Too many open files" in exit_.last_line


def test_signalling_one_that_is_gone_is_no_error() -> None:
    """It may end at any moment."""

    async def live() -> None:
        reading, writing = os.pipe()
        child = await start(
            Launch(argv=(sys.executable, "-c", "")),
            environ=os.environ,
            lifeline_fd=reading,
            on_piece=lambda piece: None,
            columns=None,
        )
        assert isinstance(child, Child)
        await child.wait()
        child.send(signal.SIGTERM)
        child.kill()
        os.close(reading)
        os.close(writing)

    asyncio.run(live())
