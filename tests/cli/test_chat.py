"""``failsoft chat`` against a real server."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from failsoft.cli.chat import _piece_of
from failsoft.cli.main import main
from failsoft.errors import EngineError, ForwardError
from tests.engine.fake_engine import FakeEngine
from tests.engine.http.rig import Rig, answer, ids_of, running


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """Answers with text whose line separators are no line feeds."""
    with running(FakeEngine(lambda request: answer("Grüße\u2028🎉\nbye"))) as started:
        yield started


def run(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    """Run ``failsoft chat ARGS`` and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["failsoft", "chat", *args])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def test_chat_prints_the_answer_alone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stdout, one line feed at the end; the options reach the engine."""
    args = ["--url", f"{rig.url}/v1/", "--max-tokens", "60", "--temperature", "0"]

    code = run(monkeypatch, "hi", "--model", "tiny-instruct", *args)

    out, err = capsys.readouterr()
    assert (code, out, err) == (0, "Grüße\u2028🎉\nbye\n", "")
    sampling = rig.engine.submitted[-1].sampling
    assert (sampling.max_tokens, sampling.temperature) == (60, 0)


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--url", "http://127.0.0.1:9/v1"], 1, "failsoft up"),
        (["--url", "nonsense"], 2, "--url"),
        (["--url", "ftp://127.0.0.1/v1"], 2, "--url"),
    ],
)
def test_nobody_to_ask_is_one_line_with_the_next_step(
    args: list[str],
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On stderr, without a traceback."""
    assert run(monkeypatch, "hi", *args) == code

    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert words in err


def test_a_refusal_is_told_in_the_servers_words(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The status and the message."""
    assert run(monkeypatch, "hi", "--url", f"{rig.url}/v1", "--model", "other") == 1

    assert "404: no model 'other' here" in capsys.readouterr().err


def test_an_answer_that_breaks_off_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What came is printed; the fault is told."""
    oom = ForwardError("the forward ran out of memory", kind="out_of_memory")
    with running(FakeEngine(lambda r: [*ids_of("so far"), oom], step_s=0.002)) as rig:
        assert run(monkeypatch, "hi", "--url", f"{rig.url}/v1") == 1

    out, err = capsys.readouterr()
    assert out.startswith("so far")
    assert "out of memory" in err


@pytest.mark.parametrize(
    ("args", "words"),
    [(["caf\udce9"], "MESSAGE"), (["hi", "--temperature", "nan"], "--temperature")],
    ids=["bytes that are no UTF-8", "NaN"],
)
def test_what_json_cannot_hold_is_one_line(
    args: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each was a traceback once."""
    code = run(monkeypatch, *args)

    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err


@pytest.mark.parametrize("event", ["nonsense", "[]", "1", '{"choices":[{}]}', '{"error":"x"}'])
def test_a_stream_of_something_else_is_one_line(event: str) -> None:
    """A server that is no engine, or an engine behind a proxy that rewrites."""
    with pytest.raises(EngineError, match="--url"):
        _piece_of(event, "http://127.0.0.1:1/v1")


def test_ctrl_c_is_exit_code_130() -> None:
    """And the engine hears of it."""
    engine = FakeEngine(lambda request: ids_of("x" * 400), step_s=0.05)
    with running(engine) as rig:
        line = [sys.executable, "-m", "failsoft", "chat", "hi", "--url", f"{rig.url}/v1"]
        with subprocess.Popen(
            line,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A test run in the background hands down an ignored SIGINT, and a child keeps it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as popen:
            assert popen.stdout is not None
            popen.stdout.read(1)
            popen.send_signal(signal.SIGINT)
            _, err = popen.communicate(timeout=10)

    assert popen.returncode == 130
    assert b"Traceback" not in err


def test_an_answer_cut_at_its_length_says_so(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr: stdout holds the answer alone."""
    assert run(monkeypatch, "hi", "--url", f"{rig.url}/v1", "--max-tokens", "2") == 0

    out, err = capsys.readouterr()
    assert out.endswith("\n")
    assert err == "the answer was cut at its length; raise --max-tokens\n"
