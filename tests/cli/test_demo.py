"""``failsoft demo`` as a newcomer runs it, over a stand-in for ``failsoft up``."""

import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from failsoft.cli.demo_board import LiveBoard
from failsoft.serving.demo.play import Moment
from failsoft.serving.demo.score import CallEnd, CallResult, Score

ROOT = Path(__file__).parents[2]


def start(tmp_path: Path, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    """Start the demo, its temporary folders in *tmp_path*, its output piped."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    own = {"PYTHONPATH": str(ROOT), "FAILSOFT_HOME": str(tmp_path / "home"), "TMPDIR": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.serving.demo.fake_demo", "demo", *arguments],
        cwd=ROOT,
        env={**os.environ, **own, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_of(tmp_path: Path) -> list[str]:
    """Return the command lines of processes that were started under *tmp_path*."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            environ = (folder / "environ").read_bytes()
        except OSError:
            continue
        if folder.name.isdigit() and str(tmp_path / "tmp").encode() in environ:
            found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def test_a_newcomer_sees_the_rungs_shift_and_no_call_fail(tmp_path: Path) -> None:
    """Killed at 1 s, answered by the next rung, back half a second later; nothing is left."""
    process = start(tmp_path, "--seconds", "3", "--kill-every", "2", "--callers", "2")

    out, errors = process.communicate(timeout=60)

    assert process.returncode == 0, errors
    news = re.findall(r"-- (.*)", out)
    kills = [place for place, each in enumerate(news) if "killed the engine of primary" in each]
    assert re.search(r"\(SIGKILL to process \d+\)", news[kills[0]])
    assert news.index("small answers now") > kills[0]
    assert re.search(
        r"^ +\d s  primary \d+ %  small \d+ %  cache 0 % \(n=\d+\)  kills 1", out, re.M
    )
    assert re.search(r"restarts: [1-9]", out)
    assert "failures: 0" in out
    assert re.search(r"replies of small: [1-9]\d* \(\d+ %\)", out)
    assert "dashboard: http://127.0.0.1:" in out
    assert list((tmp_path / "tmp").iterdir()) == []
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGINT, 130, id="Ctrl-C"),
        pytest.param(signal.SIGTERM, 143, id="SIGTERM"),
        pytest.param(
            signal.SIGHUP,
            129,
            id="closed terminal",
            marks=pytest.mark.skipif(
                signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, reason="the tests run by nohup"
            ),
        ),
    ],
)
def test_it_can_be_ended_at_any_moment(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """The totals so far are shown, and nothing is left running."""
    process = start(tmp_path, "--seconds", "60")
    assert process.stdout is not None
    while "answers now" not in process.stdout.readline():
        pass

    process.send_signal(number)
    out, _ = process.communicate(timeout=20)

    assert process.returncode == code
    assert "failures: 0" in out
    assert list((tmp_path / "tmp").iterdir()) == []
    assert processes_of(tmp_path) == []


def test_a_stage_that_cannot_be_set_is_one_line_and_exit_1(tmp_path: Path) -> None:
    """With the last words of what ended."""
    process = start(tmp_path, FAKE_UP="ends")

    out, errors = process.communicate(timeout=60)

    assert (process.returncode, out) == (1, "")
    assert errors.splitlines()[-1].startswith("error: `failsoft up` ended with exit code 3")
    assert "the disk is full" in errors


@pytest.mark.parametrize("columns", [80, 120])
def test_the_board_fits_the_terminal(columns: int) -> None:
    """Shares, the rung that answers, and what happened."""
    score = Score(("primary", "small", "cache"), clock=lambda: 1.0)
    for rung in ("primary", "small", "small"):
        score.add(CallResult(end=CallEnd.ANSWERED, rung=rung, first_token_s=0.42, ended_s=1.0))
    news = ("killed the engine of primary (SIGKILL to process 4711)",)
    moment = Moment(elapsed_s=21, tally=score.tally(), num_acts=1, num_restarts=0, news=news)
    out = io.StringIO()
    board = LiveBoard(seconds=120, console=Console(file=out, width=columns))

    with board.playing("http://127.0.0.1:8001"):
        board.show(moment)
        board.show(moment)
    board.summary(moment)

    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= columns
    assert "21 s of 120 s" in text
    assert "answers now: small" in text
    assert "67 %" in text
    assert "killed the engine of primary" in text
    assert "0.42 s" in text
