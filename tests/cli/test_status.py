"""``failsoft status`` as a user runs it: exit codes, JSON, and plain lines in a pipe."""

import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from failsoft.fallback.pins.pinned import pinned_version
from failsoft.store import Store
from tests.dashboard.home import Home, child, event, failed_attempt
from tests.dashboard.stand_in import StandIn, engine, front, status, tell, three
from tests.fallback.pins.moves import ask_for, carry_out

ROOT = Path(__file__).parents[2]


def environ(home: Home) -> dict[str, str]:
    """Return the environment of a command in *home*."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "FAILSOFT_HOME": str(home.folder)}


def run(home: Home, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``failsoft status`` in a folder without a settings file, its output piped."""
    elsewhere = home.folder / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "failsoft", "status", *arguments],
        cwd=elsewhere,
        env=environ(home),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Return a home in which nothing runs."""
    return Home(tmp_path)


@pytest.fixture
def told(home: Home) -> Iterator[StandIn]:
    """Return the front of a home in which everything runs."""
    with ExitStack() as stack:
        told, primary, small = map(stack.enter_context, (front(), engine(), engine()))
        home.publish_front(told)
        home.publish_engine("primary", primary)
        home.publish_engine("small", small)
        home.publish_supervisor(*map(child, ("primary", "small", "front", "ops")))
        home.record()
        yield told


def test_nothing_runs_is_one_line_with_the_next_step(home: Home) -> None:
    """And exit 1."""
    done = run(home)

    assert done.stdout == (
        f"nothing runs; start it with `failsoft up` (looked in {home.folder}; "
        "FAILSOFT_HOME names another)\n"
    )
    assert (done.returncode, done.stderr) == (1, "")


def test_answering_is_exit_0_and_lines_in_a_pipe_do_not_wrap(home: Home, told: StandIn) -> None:
    """It reads the settings that `failsoft up` runs with, wherever it is called."""
    home.record(
        event("engine.died", "primary", age_s=1, detail=json.dumps({"why": "long " * 40})),
        failed_attempt("primary", age_s=1, message="no [red]markup[/] " * 10),
    )

    done = run(home)

    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert lines[0].startswith("● Answering from primary (primary-v1 abababababab) since ")
    assert any(("long " * 40).strip() in line for line in lines)
    assert any("no [red]markup[/] no [red]markup[/]" in line for line in lines)
    assert any(line.split() == ["small", "-", "-", "-"] for line in lines)
    assert any(line.startswith("front ") and "running" in line for line in lines)
    assert "\x1b" not in done.stdout
    assert not [line for line in lines if line != line.rstrip()]


def test_degraded_is_exit_0(home: Home, told: StandIn) -> None:
    """Callers are answered."""
    down = {"can_serve": False, "why_not": "the engine has died"}
    tell(told, status(*three(primary=down)))

    done = run(home)

    assert done.returncode == 0
    assert done.stdout.startswith("▲ Degraded answers from small")
    assert "primary: the engine has died" in done.stdout


def test_not_answering_is_exit_1(home: Home, told: StandIn) -> None:
    """With everything that is known."""
    tell(told, status(*three(), is_draining=True))

    done = run(home)

    assert done.returncode == 1
    assert done.stdout.startswith("■ Not answering")
    assert "rungs of chat" in done.stdout


def test_what_nobody_can_say_is_exit_1(home: Home, told: StandIn) -> None:
    """Unknown is never green."""
    told.answers["/internal/status"] = (500, "")

    done = run(home)

    assert done.returncode == 1
    assert done.stdout.startswith("○ Unknown")


def test_json_is_one_document_with_the_same_exit_code(home: Home, told: StandIn) -> None:
    """Stdout holds nothing else."""
    answering = run(home, "--json")
    tell(told, status(*three(), is_draining=True))
    silent = run(home, "--json")

    assert (answering.returncode, silent.returncode) == (0, 1)
    assert json.loads(answering.stdout)["verdict"]["answers"] == "yes"
    assert json.loads(silent.stdout)["verdict"]["answers"] == "no"


def test_a_pin_that_is_not_what_the_file_says_is_one_line(home: Home, told: StandIn) -> None:
    """`failsoft pin show` said so, and nobody who only looks at the status learnt of it."""
    target = pinned_version("gemma-3-270m", {}, digest="2" * 64)
    assert target is not None
    with Store(home.settings.store) as store:
        carry_out(store, ask_for(target, why="[red]evil[/]"))

    lines = run(home).stdout.splitlines()

    (warning,) = [line for line in lines if line.startswith("warning: pin primary: ")]
    assert "gemma-3-270m is pinned, the settings file says smollm2-135m-instruct" in warning
    assert "by ann: [red]evil[/]); to keep it: `failsoft pin write`" in warning
    at = next(number for number, line in enumerate(lines) if line.startswith("pins "))
    assert "set by ann: [red]evil[/]  says smollm2-135m-instruct  -" in lines[at + 1]


def test_pins_and_a_move_under_way_are_shown(home: Home, told: StandIn) -> None:
    """A table of the slots; the move is among the warnings, above what broke."""
    first = pinned_version("smollm2-135m-instruct", {}, digest="1" * 64)
    target = pinned_version("gemma-3-270m", {}, digest="2" * 64)
    assert first is not None
    assert target is not None
    with Store(home.settings.store) as store:
        store.pins.note_file_pin("primary", first)
        store.pins.ask(ask_for(target))

    lines = run(home).stdout.splitlines()

    (warning,) = [line for line in lines if line.startswith("warning: pin primary is being moved")]
    assert "set to gemma-3-270m 222222222222, asked for" in warning
    at = next(number for number, line in enumerate(lines) if line.startswith("pins "))
    assert lines[at + 1].startswith("primary  smollm2-135m-instruct 111111111111")
    assert lines[at + 1].split("  ")[3:4] == ["the settings file"]
    assert lines[at + 1].endswith("  asked gemma-3-270m")


def test_a_file_that_was_broken_after_the_start_hides_nothing_that_runs(
    home: Home, told: StandIn
) -> None:
    """The processes go on with the settings they have; only the store is not found."""
    home.settings_path.write_text("[ladders.chat]\nrungs = 3\n")

    done = run(home)
    named = run(home, "--config", str(home.settings_path))

    assert done.returncode == 0
    assert "what broke: unknown: nobody knows where it is" in done.stdout
    assert (named.returncode, named.stdout) == (2, "")
    assert named.stderr.startswith("error: ladders.chat.rungs")


def test_what_runs_is_shown_by_the_settings_that_it_accepted(home: Home, told: StandIn) -> None:
    """`failsoft up` keeps a copy for its processes; the store is found by it."""
    good = home.settings_path.read_text().replace("sqlite:///", f"sqlite:///{home.folder}/")
    (home.folder / "run" / "processes" / "settings.toml").write_text(good)
    home.settings_path.write_text("[ladders.chat]\nrungs = 3\n")

    done = run(home)

    assert done.returncode == 0
    assert "what broke: nothing is recorded" in done.stdout
    assert f"settings {home.settings_path}" in done.stdout


def test_it_needs_no_package_of_the_server(home: Home) -> None:
    """A client's machine has neither Flask nor torch."""
    heavy = "{'flask', 'waitress', 'starlette', 'torch'} & set(sys.modules)"
    code = (
        "import sys, failsoft.cli.main, failsoft.cli.status_tables, failsoft.dashboard.observer\n"
        f"print({heavy} or 'none')"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], env=environ(home), capture_output=True, text=True, check=True
    )

    assert done.stdout == "none\n"


@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_gets_colours_and_no_line_wider_than_it_is(
    home: Home, told: StandIn, columns: int
) -> None:
    """Tables fold inside their columns."""
    why = "the engine of slot primary has died (its process is gone)"
    down = {"can_serve": False, "why_not": why, "breaker": "open", "retry_in_s": 8.0}
    tell(told, status(*three(primary=down)))
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "failsoft", "status"],
        env={**environ(home), "COLUMNS": str(columns), "TERM": "xterm"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)

    shown = read_all(master)

    assert process.wait(10) == 0
    assert "\x1b[" in shown
    assert max(len(line) for line in without_colours(shown).splitlines()) <= columns


def read_all(master: int) -> str:
    """Return what a terminal's program printed, once it has ended."""
    until_s, found = time.monotonic() + 30, b""
    while time.monotonic() < until_s:
        try:
            piece = os.read(master, 65536)
        except OSError:  # Linux: the other side is closed
            break
        found += piece
    os.close(master)
    return found.decode().replace("\r\n", "\n")


def without_colours(text: str) -> str:
    """Return *text* without escape sequences."""
    parts = text.split("\x1b[")
    return parts[0] + "".join(part.partition("m")[2] for part in parts[1:])
